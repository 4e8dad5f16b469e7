//! Every error of the core, with a hint that says what to do. Does not decide which Python class it becomes: see `py`.

use thiserror::Error as ThisError;

/// Shorthand for results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What is wrong, in words a user can act on. [`Error::hint`] says what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub enum Error {
    /// Two tokens of the vocabulary have one id.
    #[error("id {id} belongs to two tokens, `{first}` and `{second}`; every token needs an id of its own")]
    DuplicateId {
        /// The id they share.
        id: u32,
        /// The token that sorts first.
        first: String,
        /// The other one.
        second: String,
    },
    /// One string is listed as two tokens.
    #[error("the token `{token}` is listed twice; a vocabulary lists a token once")]
    DuplicateToken {
        /// The token.
        token: String,
    },
    /// One pair is listed as two merges.
    #[error("the merge `{left}` + `{right}` is listed twice, at ranks {first} and {second}; a pair has one rank")]
    DuplicateMerge {
        /// Left token of the pair.
        left: String,
        /// Right token of the pair.
        right: String,
        /// The rank it is first listed at.
        first: usize,
        /// The rank it is listed at again.
        second: usize,
    },
    /// A merge names an id that no token has.
    #[error("the merge at rank {rank} names id {id}, which no token has")]
    UnknownId {
        /// The rank of the merge.
        rank: usize,
        /// The id it names.
        id: u32,
    },
    /// A new merge names a string that is no token.
    #[error("a merge needs the token `{part}`, which the tokenizer lacks")]
    MissingPart {
        /// The string.
        part: String,
    },
    /// A model without merges was asked for them.
    #[error("the tokenizer has no merges: it is not BPE")]
    NoMerges,
    /// BPE was asked for what only the other models have.
    #[error("the tokenizer is BPE: its merges decide what a text is split into")]
    NotForMerges,
    /// Unigram: the scores do not fit the tokens.
    #[error("every token of a Unigram model needs a score that is a number")]
    BadScores,
    /// Unigram: there is no token with the id of the unknown token.
    #[error("`unk_id` is {id}, and no token has this id")]
    NoSuchUnknown {
        /// The id.
        id: u32,
    },
    /// Unigram: a text has a character without a token, and there is no unknown token.
    #[error("the text has a character that no token spells, and `unk_id` names no unknown token")]
    UnknownCharacter,
    /// The strings of a merge, joined, are no token.
    #[error("the merge at rank {rank} joins `{left}` and `{right}`, but `{left}{right}` is not in the vocabulary")]
    MissingProduct {
        /// The rank of the merge.
        rank: usize,
        /// Left token of the pair.
        left: String,
        /// Right token of the pair.
        right: String,
    },
    /// Text needs the unknown token and there is none.
    #[error("the text has a character outside the vocabulary, and `unk_token` is `{token}`, which is not a token")]
    MissingUnknown {
        /// What `unk_token` says.
        token: String,
    },
    /// The `tokenizers` library refuses the pipeline.
    #[error("the `tokenizers` library cannot read this pipeline: {reason}")]
    Pipeline {
        /// What the library said.
        reason: String,
    },
    /// A byte-level pipeline gave something that is not a byte.
    #[error("the pipeline is byte-level, but gives the character {character:?}, which stands for no byte")]
    NotByteLevel {
        /// The character.
        character: char,
    },
    /// A document cannot be read.
    #[error("line {line}: {reason}")]
    BadLine {
        /// Counted from 1 within the block.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// A row has no text.
    #[error("row {row}: {reason}")]
    BadRow {
        /// Counted from 1 within the block.
        row: u64,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Two counts of the same pretoken add up to more than a count can hold.
    #[error("the count of `{pretoken}` is beyond 2^64")]
    Overflow {
        /// The pretoken.
        pretoken: String,
    },
    /// Temporary files cannot be written or read.
    #[error("cannot keep counts on disk, in `{path}`: {reason}")]
    Spill {
        /// The temporary file.
        path: String,
        /// What the operating system said.
        reason: String,
    },
    /// Counts of a byte-level vocabulary were given to one that spells text.
    #[error("a counted pretoken is not text, but the vocabulary spells text")]
    NotText,
    /// Counts are not what they should be.
    #[error("the counts are damaged: {reason}")]
    BadCounts {
        /// What is wrong.
        reason: &'static str,
    },
    /// An added token is empty once normalized.
    #[error("the added token `{token}` is empty after normalization, so it would match everywhere")]
    VanishingAddedToken {
        /// The token.
        token: String,
    },
    /// Two added tokens are the same once normalized.
    #[error(
        "the added tokens `{first}` and `{second}` are the same after normalization: which one is found is undefined"
    )]
    CollidingAddedTokens {
        /// The one that sorts first.
        first: String,
        /// The other.
        second: String,
    },
    /// A document needs more memory than is allowed.
    #[error(
        "a document of {bytes} bytes or more cannot be cut into parts; it needs about {factor} times as much memory, \
         and documents beyond {longest} bytes need more than is allowed"
    )]
    CostlyDocument {
        /// Its length.
        bytes: u64,
        /// How many bytes of memory a byte of it needs.
        factor: usize,
        /// The longest document that memory allows.
        longest: usize,
    },
    /// A part of a document that cannot be cut is too long to be encoded.
    #[error(
        "a document has {bytes} bytes that cannot be cut into parts; at most {longest} can be encoded at once with this \
         tokenizer"
    )]
    LongPart {
        /// Its length.
        bytes: usize,
        /// The longest one that is encoded.
        longest: usize,
    },
    /// A pretoken whose encoding would need gigabytes.
    #[error("a pretoken has {characters} characters; at most {longest} can be encoded")]
    LongPretoken {
        /// Its length, in characters of the vocabulary's alphabet.
        characters: usize,
        /// The longest one that is encoded.
        longest: usize,
    },
    /// A pretoken, or the number of them, is beyond what training counts with.
    #[error("training cannot count {number} {what}; the limit is 2^31")]
    TooMany {
        /// How many there are.
        number: u64,
        /// Of what.
        what: &'static str,
    },
    /// The sum of all counts of pairs is beyond what training counts with.
    #[error("the pairs of the counted text occur more than 2^64 times")]
    TooFrequent,
    /// The caller stopped the work.
    #[error("stopped")]
    Stopped,
    /// The `tokenizers` library failed to decode tokens.
    #[error("the tokenizer's own decoder failed: {reason}")]
    Decode {
        /// What the library said.
        reason: String,
    },
    /// The `tokenizers` library failed on a text.
    #[error("the tokenizer's own normalizer or pre-tokenizer failed on the text: {reason}")]
    Pretokenize {
        /// What the library said.
        reason: String,
    },
}

impl Error {
    /// Whether one document is at fault, so that the others can be read without it.
    #[must_use]
    pub fn is_bad_document(&self) -> bool {
        matches!(
            self,
            Self::BadLine { .. }
                | Self::BadRow { .. }
                | Self::CostlyDocument { .. }
                | Self::LongPart { .. }
                | Self::LongPretoken { .. }
        )
    }

    /// What the user can do about it. Options are in braces: a command and a function spell them differently.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::DuplicateId { .. } => "give one of the two tokens a free id in `model.vocab`",
            Self::DuplicateToken { .. } => "remove one of the two entries of `model.vocab`",
            Self::DuplicateMerge { .. } => {
                "delete the earlier listing from `model.merges`: loaders use the last rank, so nothing else changes"
            }
            Self::UnknownId { .. } | Self::MissingPart { .. } => "give the id of a token, or add the token first",
            Self::MissingProduct { .. } => {
                "add the joined token to `model.vocab`, or delete the merge from `model.merges`"
            }
            Self::NotForMerges => "pass a tokenizer with a Unigram or WordPiece model",
            Self::NoMerges => "pass a tokenizer with a BPE model",
            Self::BadScores => "give every entry of `model.vocab` a score",
            Self::NoSuchUnknown { .. } | Self::UnknownCharacter => "set `model.unk_id` to the id of a token",
            Self::MissingUnknown { .. } => "set `model.unk_token` to a token of the vocabulary, or to null",
            Self::Pipeline { .. } => {
                "load the file with `tokenizers.Tokenizer.from_file` to see whether a newer version reads it"
            }
            Self::VanishingAddedToken { .. } | Self::CollidingAddedTokens { .. } => {
                "set `normalized` to false for it in `added_tokens`"
            }
            Self::CostlyDocument { .. } => {
                "raise {memory}, or give the text as smaller documents, such as lines: {documents}"
            }
            Self::LongPart { .. } => {
                "give the text as smaller documents, such as lines: {documents}; or count it (`tokengraft count`) \
                 and pass the counts"
            }
            Self::LongPretoken { .. } => {
                "leave out the documents that have megabytes of text without white space, and count again"
            }
            Self::TooMany { .. } => "leave out rare pretokens: `tokengraft count --min-count`",
            Self::Stopped => "start again",
            Self::NotText => "count the corpus with this tokenizer",
            Self::BadCounts { .. } => "count the corpus again",
            Self::NotByteLevel { .. } => "let ByteLevel be the last step that changes characters",
            Self::BadLine { .. } => "fix the line, or pass {skip_bad} to leave such lines out",
            Self::BadRow { .. } => "remove the row, or pass {skip_bad} to leave such rows out",
            Self::Overflow { .. } | Self::TooFrequent => "lower the weights",
            Self::Spill { .. } => "raise {memory}, or set TMPDIR to a folder with more space",
            Self::Decode { .. } => "decode the same ids with `tokenizers` to see whether it fails there too",
            Self::Pretokenize { .. } => "try the same text with `tokenizers` to see whether it fails there too",
        }
    }
}
