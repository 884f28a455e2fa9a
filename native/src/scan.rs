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

/// The batches that stand one after the other from the start of `buffer`.
pub fn scan(buffer: &[u8], check_crc: bool) -> Scan {
    let mut found = Scan::default();
    while buffer.len() - found.consumed > MAGIC_AT {
        let rest = &buffer[found.consumed..];
        let length =
            i32::from_be_bytes([rest[LENGTH_AT], rest[LENGTH_AT + 1], rest[LENGTH_AT + 2], rest[LENGTH_AT + 3]]);
        found.fault = header_fault(length, rest[MAGIC_AT] as i8);
        if found.fault.is_some() {
            break;
        }
        let size = length as usize + LOG_OVERHEAD; // Not negative: the header alone takes more.
        let Some((header, batch)) = Header::parse(rest).zip(rest.get(..size)) else {
            found.needed = size;
            break;
        };
        if check_crc && let Err(Fault::Corrupt(text)) = crc::check(&header, batch) {
            found.fault = Some(text);
            break;
        }
        found.headers.push(header);
        found.consumed += size;
    }
    found
}
