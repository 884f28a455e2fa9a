//! CRC32C of a batch: over everything from the attributes to its end.

use crate::batch::{ATTRIBUTES_AT, HEADER_SIZE, Header};
use crate::errors::{Fault, Result};

/// CRC32C of `data`, with the processor's own instruction where it has one.
pub fn crc32c(data: &[u8]) -> u32 {
    ::crc32c::crc32c(data)
}

/// CRC32C of the bytes that `crc` covers, followed by `data`.
pub fn crc32c_append(crc: u32, data: &[u8]) -> u32 {
    ::crc32c::crc32c_append(crc, data)
}

/// The checksum that `batch` should carry; that of no bytes if it is too short.
pub fn of_batch(batch: &[u8]) -> u32 {
    crc32c(batch.get(ATTRIBUTES_AT..).unwrap_or_default())
}

/// The checksum of a batch with this header and these records, whatever CRC the header carries.
pub fn of_parts(header: &Header, records: &[u8]) -> u32 {
    crc32c_append(crc32c(&header.pack()[ATTRIBUTES_AT..HEADER_SIZE]), records)
}

/// Refuse a batch whose checksum is wrong.
pub fn check(header: &Header, batch: &[u8]) -> Result<()> {
    let (carried, computed) = (header.crc, of_batch(batch));
    if carried == computed {
        return Ok(());
    }
    Fault::corrupt(format!(
        "the batch of {} bytes carries CRC {carried:08x}, its bytes give {computed:08x}",
        batch.len()
    ))
}
