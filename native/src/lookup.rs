//! Look-ups in one batch without decoding all of it.

use crate::batch::Header;
use crate::decode::{Spans, records_of};
use crate::errors::Result;

/// (offset, timestamp) of the first record at `start_offset` or later with a timestamp of `target_ms` or later.
pub fn find_time(
    buffer: &[u8],
    header: &Header,
    position: usize,
    target_ms: i64,
    start_offset: i64,
) -> Result<Option<(i64, i64)>> {
    if header.max_timestamp < target_ms {
        return Ok(None);
    }
    let data = records_of(buffer, header, position)?;
    let mut spans = Spans::new(&data, header)?;
    while let Some(span) = spans.next()? {
        if span.timestamp >= target_ms && span.offset >= start_offset {
            return Ok(Some((span.offset, span.timestamp)));
        }
    }
    Ok(None)
}
