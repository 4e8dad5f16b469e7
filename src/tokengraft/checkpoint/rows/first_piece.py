"""The row of a token's first piece: the token that the old model predicts where the new one begins."""

from tokengraft.checkpoint.rows.interface import NewTokens, Rows, TableInfo


def first_piece(tokens: NewTokens, info: TableInfo) -> Rows:
    """The row of each token's first piece; without pieces, the mean of the table."""
    return tokens.one_piece(last=False, otherwise=info.mean)
