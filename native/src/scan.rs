//! Finds the batches in a part of a log; `kernel/reference/scan.py` gives the rules.

use crate::batch::{Header, LENGTH_AT, LOG_OVERHEAD, MAGIC_AT, header_fault};
use crate::crc;
use crate::errors::Fault;

/// The contents of a part of a log.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Scan {
    pub headers: Vec<Header>,
    /// Bytes of whole, valid batches from the start.
    pub consumed: usize,
    /// Size of the incomplete batch that begins at `consumed`; 0 if that is unknown.
    pub needed: usize,
    /// Why no valid batch begins at `consumed`; None: the bytes just end.
    pub fault: Option<String>,
}

/// The start of some bytes.
pub enum First {
    /// A whole batch.
    Batch(Header),
    /// The bytes end; the size of the batch that begins here, 0 if that is unknown.
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

/// The consecutive batches from the start of `buffer`.
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
