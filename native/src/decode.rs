//! Where the fields of the records in a batch lie; `kernel/reference/layout.py` gives the rules.

use std::borrow::Cow;

use crate::batch::{HEADER_SIZE, Header};
use crate::codec::{LIMIT, RATIO, decompress};
use crate::errors::{Fault, Result};
use crate::varint::{Unread, read_u32, read_u64, unzigzag32, unzigzag64};

/// Leaves space for any delta.
const BASE_OFFSET_MAX: i64 = i64::MAX - (1 << 31);

/// A record with its absolute offset and its effective timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span<'a> {
    pub offset: i64,
    pub timestamp: i64,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    /// The timestamp delta in its bytes: the distance to the batch's base timestamp.
    pub timestamp_delta: i64,
    /// From the offset delta to the end of the record: nothing here depends on the base timestamp.
    pub rest: &'a [u8],
    /// From their count to the end of the record.
    pub headers: &'a [u8],
}

/// The uncompressed records of the batch at `position`; borrowed if they are not compressed.
pub fn records_of<'a>(buffer: &'a [u8], header: &Header, position: usize) -> Result<Cow<'a, [u8]>> {
    let size = header.size();
    let left = buffer.len().saturating_sub(position);
    if size > left {
        return Fault::corrupt(format!("the batch takes {size} bytes, {left} are left at {position}"));
    }
    decompress(header.codec()?, &buffer[position + HEADER_SIZE..position + size], LIMIT, RATIO)
}

/// Refuse a header that cannot be right for any records.
pub fn check_claims(header: &Header) -> Result<()> {
    if header.count < 0 {
        return Fault::corrupt(format!("the batch declares {} records", header.count));
    }
    let base = header.base_offset;
    if !(0..=BASE_OFFSET_MAX).contains(&base) {
        return Fault::corrupt(format!("base offset is {base}; offsets are numbers from 0 to {BASE_OFFSET_MAX}"));
    }
    Ok(())
}

/// The position of a walk, to continue it later.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    position: usize,
    index: i32,
}

/// The records in `data`, the uncompressed records of a batch, one after the other.
#[derive(Clone, Debug)]
pub struct Spans<'a> {
    data: &'a [u8],
    place: Place,
    count: i32,
    base_offset: i64,
    base_timestamp: i64,
    /// The one timestamp of all records under LogAppendTime.
    append_time: Option<i64>,
}

impl<'a> Spans<'a> {
    pub fn new(data: &'a [u8], header: &Header) -> Result<Self> {
        Self::from(data, header, Place::default())
    }

    /// Continue where another walk over the same records stopped.
    pub fn from(data: &'a [u8], header: &Header, place: Place) -> Result<Self> {
        check_claims(header)?;
        Ok(Self {
            data,
            place,
            count: header.count,
            base_offset: header.base_offset,
            base_timestamp: header.base_timestamp,
            append_time: header.is_log_append_time().then_some(header.max_timestamp),
        })
    }

    pub fn place(&self) -> Place {
        self.place
    }

    /// The next record; None after the last, if nothing follows it.
    #[inline(always)] // So that callers pay for the fields they look at.
    #[expect(clippy::should_implement_trait, reason = "`while let Some(span) = spans.next()?` wants the fault outside")]
    pub fn next(&mut self) -> Result<Option<Span<'a>>> {
        if self.place.index == self.count {
            return if self.place.position == self.data.len() { Ok(None) } else { self.wrong_end() };
        }
        match self.read() {
            Ok(span) => Ok(Some(span)),
            Err(Unread::Ends) => self.ends_early(),
            Err(Unread::Bad(fault)) => Err(fault),
        }
    }

    #[inline(always)]
    fn read(&mut self) -> std::result::Result<Span<'a>, Unread> {
        let data = self.data;
        let mut position = self.place.position;
        let length = read_u32(data, &mut position)?;
        let end = position + (length >> 1) as usize;
        position += 1; // Attributes, which mean nothing yet.
        let timestamp_delta = unzigzag64(read_u64(data, &mut position)?);
        let rest = position;
        let offset_delta = unzigzag32(read_u32(data, &mut position)?);
        let key = read_field(data, &mut position)?;
        let value = read_field(data, &mut position)?;
        let headers = position;
        skip_headers(data, &mut position)?;
        if position != end || length & 1 != 0 {
            return Err(self.wrong_length(length, position, end).into());
        }
        // The value of the last header is the one field nothing is read after.
        let rest_and_headers = (data.get(rest..end), data.get(headers..end));
        let (Some(rest), Some(headers)) = rest_and_headers else { return Err(Unread::Ends) };
        self.place.position = end;
        self.place.index += 1;
        Ok(Span {
            offset: self.base_offset + i64::from(offset_delta),
            timestamp: self.append_time.unwrap_or_else(|| self.base_timestamp.wrapping_add(timestamp_delta)),
            key,
            value,
            timestamp_delta,
            rest,
            headers,
        })
    }

    #[cold]
    fn wrong_length(&self, length: u32, position: usize, end: usize) -> Fault {
        let (index, declared, beyond) = (self.place.index, unzigzag32(length), position as i64 - end as i64);
        Fault::Corrupt(format!("record {index} declares {declared} bytes, its fields end {beyond:+} bytes from there"))
    }

    #[cold]
    fn ends_early<T>(&self) -> Result<T> {
        let (count, size) = (self.count, self.data.len());
        Fault::corrupt(format!("the batch declares {count} records, its {size} bytes of them end inside one"))
    }

    #[cold]
    fn wrong_end<T>(&self) -> Result<T> {
        let (left, count) = (self.data.len() - self.place.position, self.count);
        Fault::corrupt(format!("{left} bytes follow the last of the {count} records the batch declares"))
    }
}

/// Name and value of each header of a valid record.
pub fn headers_of(headers: &[u8]) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
    let mut position = 0;
    let count = read_u32(headers, &mut position).unwrap_or(0) >> 1;
    (0..count).map_while(move |_| {
        let name = read_field(headers, &mut position).ok()??;
        let value = read_field(headers, &mut position).ok()?;
        Some((name, value))
    })
}

/// A length and as many bytes; None for null, which any negative length means.
#[inline(always)]
fn read_field<'a>(data: &'a [u8], position: &mut usize) -> std::result::Result<Option<&'a [u8]>, Unread> {
    let size = read_u32(data, position)?;
    if size & 1 != 0 {
        return Ok(None);
    }
    let start = *position;
    *position = start + (size >> 1) as usize;
    let Some(field) = data.get(start..*position) else { return Err(Unread::Ends) };
    Ok(Some(field))
}

#[inline(always)]
fn skip_headers(data: &[u8], position: &mut usize) -> std::result::Result<(), Unread> {
    let count = read_u32(data, position)?;
    if count == 0 { Ok(()) } else { skip_some_headers(data, position, count) }
}

#[cold]
fn skip_some_headers(data: &[u8], position: &mut usize, count: u32) -> std::result::Result<(), Unread> {
    if count & 1 != 0 {
        return Err(Fault::Corrupt(format!("a record declares {} headers", unzigzag32(count))).into());
    }
    for _ in 0..count >> 1 {
        let size = read_u32(data, position)?;
        if size & 1 != 0 {
            return Err(Fault::Corrupt("a record header has no name".into()).into());
        }
        *position += (size >> 1) as usize;
        let size = read_u32(data, position)?;
        if size & 1 == 0 {
            *position += (size >> 1) as usize;
        }
    }
    Ok(())
}
