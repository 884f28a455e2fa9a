//! Finding the batches in a stretch of log; `kernel/reference/scan.py` gives the rules.

use crate::batch::{Header, LENGTH_AT, LOG_OVERHEAD, MAGIC_AT, header_fault};
use crate::crc;
use crate::errors::Fault;

/// What a stretch of bytes holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Scan {
    pub headers: Vec<Header>,
    /// Bytes of whole, valid batches from the start.
    pub consumed: usize,
    /// Size of the batch that begins at `consumed` and does not end here; 0 if not even that can be told.
    pub needed: usize,
    /// Why no valid batch begins at `consumed`; None: the bytes merely end.
    pub fault: Option<String>,
}

/// What stands at the start of some bytes.
pub enum First {
    /// A whole batch.
    Batch(Header),
    /// The bytes end; how many a batch that begins here takes, 0 if not even that can be told.
    End(usize),
    /// Why no valid batch begins here.
    Fault(String),
}

/// What `rest` begins with.
pub fn first(rest: &[u8], check_crc: bool) -> First {
    if rest.len() <= MAGIC_AT {
        return First::End(0);
    }
    let length = i32::from_be_bytes([rest[LENGTH_AT], rest[LENGTH_AT + 1], rest[LENGTH_AT + 2], rest[LENGTH_AT + 3]]);
    if let Some(fault) = header_fault(length, rest[MAGIC_AT] as i8) {
        return First::Fault(fault);
    }
    let size = length as usize + LOG_OVERHEAD; // Not negative: the header alone takes more.
    let Some((header, batch)) = Header::parse(rest).zip(rest.get(..size)) else {
        return First::End(size);
    };
    if check_crc && let Err(Fault::Corrupt(text)) = crc::check(&header, batch) {
        return First::Fault(text);
    }
    First::Batch(header)
}

/// The batches that stand one after the other from the start of `buffer`.
pub fn scan(buffer: &[u8], check_crc: bool) -> Scan {
    let mut found = Scan::default();
    loop {
        match first(&buffer[found.consumed..], check_crc) {
            First::Batch(header) => {
                found.consumed += header.size();
                found.headers.push(header);
            }
            First::End(needed) => {
                found.needed = needed;
                return found;
            }
            First::Fault(text) => {
                found.fault = Some(text);
                return found;
            }
        }
    }
}
