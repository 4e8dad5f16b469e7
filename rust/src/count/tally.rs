//! How much of a block was read and counted, and the limits on it.

/// How much of a block was counted, and how much was read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Documents counted, each with the part that begins it. Documents that are no longer held out are among them.
    pub documents: u64,
    /// Bytes of text counted, in UTF-8.
    pub bytes: u64,
    /// Characters of text counted.
    pub characters: u64,
    /// Occurrences of pretokens.
    pub pretokens: u64,
    /// Parts of the bytes read that were not UTF-8, each replaced by one character.
    pub replaced: u64,
    /// Documents left out because they cannot be read.
    pub skipped: u64,
    /// Documents read, those that are held out included.
    pub read_documents: u64,
    /// Bytes of text read, those of documents that are held out included.
    pub read_bytes: u64,
    /// Whether a text was cut short by the limit of bytes: nothing after it counts.
    pub cut_short: bool,
}

/// How much more to read.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Documents.
    pub documents: u64,
    /// Bytes of text; a longer document is cut short between two characters.
    pub bytes: u64,
}

impl Limits {
    /// No limit.
    pub const NONE: Self = Self { documents: u64::MAX, bytes: u64::MAX };
}

impl Tally {
    /// Whether nothing more is to be read: neither a document, nor, if it is not `at_start`, more of one.
    pub(super) fn reaches(&self, limits: Limits, at_start: bool) -> bool {
        at_start && self.read_documents >= limits.documents || self.read_bytes >= limits.bytes || self.cut_short
    }
}

/// The longest prefix of a text that fits into a number of bytes.
pub(super) fn truncated(text: &str, bytes: u64) -> &str {
    let most = usize::try_from(bytes).unwrap_or(usize::MAX).min(text.len());
    let end = (0..=most).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    &text[..end]
}

pub(super) fn count_characters(text: &str) -> u64 {
    // Chunks whose count fits a byte, so that the compiler can count many bytes at once.
    let starts = |chunk: &[u8]| chunk.iter().map(|&byte| u8::from(byte & 0xC0 != 0x80)).sum::<u8>();
    text.as_bytes().chunks(255).map(|chunk| u64::from(starts(chunk))).sum()
}
