//! What the kernel answers when the bytes it was given are not good.
//!
//! Rule 1: whatever the bytes, a function returns a value or a `Fault`. A panic is a defect of the kernel; it is caught
//!         at the border to Python (`python::call`) and leaves as a `Fault` too.
//! Rule 2: the words are those of `kernel/reference`, except where a codec's library has its own.

use std::any::Any;

/// Codes of Kafka's errors that the kernel itself names; `ottla.wire.errors` has the table.
pub const INVALID_TIMESTAMP: i16 = 32;
pub const INVALID_RECORD: i16 = 87;
pub const MESSAGE_TOO_LARGE: i16 = 10;

/// Why the record at `batch_index` (counted from 0) was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordFault {
    pub batch_index: i32,
    pub message: String,
}

/// An error: each variant becomes the exception of the same name in `ottla.kernel.errors`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// `CorruptBatch`: these bytes are no whole record batch.
    Corrupt(String),
    /// The same, because they unpack to more than is allowed.
    Bomb(String),
    /// `InvalidRecords`: a produced batch breaks a rule of the topic or of the format.
    Invalid { error: i16, text: String, records: Vec<RecordFault> },
    /// `Refused` with a code of Kafka's.
    Refused { error: i16, text: String },
    /// `TakesLong`: the batch has more to check than the caller allows.
    Long,
    /// `ValueError`: a caller's mistake, not one of the bytes.
    Mistake(String),
}

pub type Result<T> = std::result::Result<T, Fault>;

impl Fault {
    pub fn corrupt<T>(text: impl Into<String>) -> Result<T> {
        Err(Self::Corrupt(text.into()))
    }

    pub fn invalid_record(text: impl Into<String>) -> Self {
        Self::Invalid { error: INVALID_RECORD, text: text.into(), records: Vec::new() }
    }

    /// The same for a produced batch with a correct checksum: it was sent that way, and must not be
    /// retried.
    pub fn as_sent(self) -> Self {
        match self {
            Self::Corrupt(text) | Self::Bomb(text) => Self::invalid_record(text),
            other => other,
        }
    }

    /// The error for a panic.
    pub fn of_panic(panic: &(dyn Any + Send)) -> Self {
        let why = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("it does not say why");
        Self::Corrupt(format!("the native kernel failed on these bytes, which is a defect of its own: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_refusal_with_its_words() {
        let panic = std::panic::catch_unwind(|| panic!("index {} of {}", 9, 3)).unwrap_err();
        let Fault::Corrupt(text) = Fault::of_panic(&*panic) else { panic!("not a refusal of the bytes") };
        assert!(text.ends_with("index 9 of 3"), "{text}");
    }
}
