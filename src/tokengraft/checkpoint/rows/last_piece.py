"""The row of a token's last piece: the token after which the old model predicts what follows."""

from tokengraft.checkpoint.rows.interface import NewTokens, Rows, TableInfo


def last_piece(tokens: NewTokens, info: TableInfo) -> Rows:
    """The row of each token's last piece; without pieces, the mean of the table."""
    return tokens.one_piece(last=True, otherwise=info.mean)
