//! Fetched bytes to columns; `kernel/reference/columns.py` gives the rules.

use crate::batch::Header;
use crate::decode::{Span, Spans, headers_of};
use crate::decode_fetched::Walk;
use crate::errors::Result;

/// Arrow counts the bytes of a column in 31 bits, and invalid UTF-8 in a header's name may triple
/// in size.
pub const COLUMNS_BYTES_MAX: usize = 512 * 1024 * 1024;
/// A larger batch counts as damaged, for the same reason.
pub const BATCH_BYTES_MAX: usize = 128 * 1024 * 1024;
pub const BYTES_MAX: usize = 256 * 1024 * 1024;

/// Attributes, and six lengths, deltas and counts of a byte each.
const RECORD_SIZE_MIN: usize = 7;

/// The fetched bytes of one partition.
pub struct Part<'a> {
    pub partition: i32,
    pub data: &'a [u8],
    pub walk: Walk,
}

/// The columns of some records, in Arrow's layout.
#[derive(Debug, Default)]
pub struct Columns {
    pub partition: Vec<i32>,
    pub offset: Vec<i64>,
    pub timestamp: Vec<i64>,
    pub timestamp_type: Vec<i8>,
    pub key: Binary,
    pub value: Binary,
    /// Where each record's headers end among all headers; the first entry is 0.
    pub header_ends: Vec<i32>,
    pub header_key: Binary,
    pub header_value: Binary,
}

/// Concatenated byte strings, and where each ends.
#[derive(Debug)]
pub struct Binary {
    /// The first entry is 0.
    pub ends: Vec<i32>,
    pub bytes: Vec<u8>,
    /// A bit for each string, least significant first: 0 for null. Empty as long as there is no null.
    pub validity: Vec<u8>,
    pub null_count: usize,
}

impl Default for Binary {
    fn default() -> Self {
        Self { ends: vec![0], bytes: Vec::new(), validity: Vec::new(), null_count: 0 }
    }
}

impl Binary {
    pub fn count(&self) -> usize {
        self.ends.len() - 1
    }

    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let valid = self.validity.get(index / 8).is_none_or(|bits| bits >> (index % 8) & 1 == 1);
        valid.then(|| &self.bytes[self.ends[index] as usize..self.ends[index + 1] as usize])
    }

    #[inline(always)]
    fn push(&mut self, string: Option<&[u8]>) {
        match string {
            Some(bytes) => self.bytes.extend_from_slice(bytes),
            None => self.mark_null(),
        }
        self.ends.push(self.bytes.len() as i32); // At most 3 x (COLUMNS_BYTES_MAX + BATCH_BYTES_MAX), which fits.
    }

    fn mark_null(&mut self) {
        let index = self.count();
        if self.validity.len() <= index / 8 {
            self.validity.resize(index / 8 + 1, 0xff);
        }
        self.validity[index / 8] &= !(1 << (index % 8));
        self.null_count += 1;
    }

    /// Drop all but the first `count` strings, `null_count` of which are null.
    fn back_to(&mut self, count: usize, null_count: usize) {
        self.ends.truncate(count + 1);
        self.bytes.truncate(self.ends[count] as usize);
        self.validity.truncate(count.div_ceil(8));
        if let Some(bits) = self.validity.get_mut(count / 8) {
            *bits |= 0xff << (count % 8);
        }
        self.null_count = null_count;
    }

    /// Give the bits their final number.
    fn finish(&mut self) {
        if self.null_count > 0 {
            self.validity.resize(self.count().div_ceil(8), 0xff);
        }
    }
}

/// The lengths of the columns before a batch was added.
struct Mark {
    rows: usize,
    headers: usize,
    /// Of keys, values and values of headers.
    null_counts: [usize; 3],
}

/// The records of `parts`; each part's walk says how far it was read.
pub fn read_columns(parts: &mut [Part<'_>], bytes_max: usize) -> Columns {
    let mut columns = Columns { header_ends: vec![0], ..Columns::default() };
    let mut held = 0;
    for part in parts {
        while held < bytes_max {
            let (partition, data) = (part.partition, part.data);
            let size = part.walk.next(data, |header, records, position| {
                Ok(columns.add(partition, header, &records, position)?.then_some(records.len()))
            });
            let Some(size) = size else { break };
            held += size;
        }
    }
    for column in [&mut columns.key, &mut columns.value, &mut columns.header_key, &mut columns.header_value] {
        column.finish();
    }
    columns
}

impl Columns {
    pub fn count(&self) -> usize {
        self.offset.len()
    }

    /// Add the records of a batch from `position` on; returns whether there were any. Nothing is
    /// added unless all are valid.
    fn add(&mut self, partition: i32, header: &Header, records: &[u8], position: i64) -> Result<bool> {
        let before = self.mark();
        let mut spans = Spans::new(records, header)?;
        self.reserve(header.count, records.len());
        loop {
            match spans.next() {
                Ok(Some(span)) if span.offset >= position => self.push(&span),
                Ok(Some(_)) => (),
                Ok(None) => break,
                Err(fault) => {
                    self.back_to(&before);
                    return Err(fault);
                }
            }
        }
        self.partition.resize(self.count(), partition);
        self.timestamp_type.resize(self.count(), i8::from(header.is_log_append_time()));
        Ok(self.count() > before.rows)
    }

    /// Reserve memory for the records that the header claims, if the bytes can hold them; most of
    /// it is for values.
    fn reserve(&mut self, claimed: i32, bytes: usize) {
        let rows = (claimed.max(0) as usize).min(bytes / RECORD_SIZE_MIN);
        self.offset.reserve(rows);
        self.timestamp.reserve(rows);
        self.header_ends.reserve(rows);
        self.key.ends.reserve(rows);
        self.value.ends.reserve(rows);
        self.value.bytes.reserve(bytes);
    }

    fn mark(&self) -> Mark {
        Mark {
            rows: self.count(),
            headers: self.header_key.count(),
            null_counts: [self.key.null_count, self.value.null_count, self.header_value.null_count],
        }
    }

    /// Drop what was added since `mark`.
    fn back_to(&mut self, mark: &Mark) {
        self.offset.truncate(mark.rows);
        self.timestamp.truncate(mark.rows);
        self.header_ends.truncate(mark.rows + 1);
        self.key.back_to(mark.rows, mark.null_counts[0]);
        self.value.back_to(mark.rows, mark.null_counts[1]);
        self.header_key.back_to(mark.headers, 0);
        self.header_value.back_to(mark.headers, mark.null_counts[2]);
    }

    #[inline(always)]
    fn push(&mut self, span: &Span<'_>) {
        self.offset.push(span.offset);
        self.timestamp.push(span.timestamp);
        self.key.push(span.key);
        self.value.push(span.value);
        if span.headers.len() > 1 {
            self.push_headers(span.headers);
        }
        self.header_ends.push(self.header_key.count() as i32);
    }

    #[cold]
    fn push_headers(&mut self, headers: &[u8]) {
        for (name, value) in headers_of(headers) {
            self.header_key.push(Some(String::from_utf8_lossy(name).as_bytes()));
            self.header_value.push(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_back_leaves_no_trace() {
        for kept in 0..20 {
            let (mut one, mut other) = (Binary::default(), Binary::default());
            let string = |index: usize| (index % 3 != 0).then_some(&b"bytes"[..]);
            (0..kept).for_each(|index| one.push(string(index)));
            let nulls = one.null_count;
            (0..9).for_each(|_| one.push(None));
            one.back_to(kept, nulls);
            (kept..30).for_each(|index| one.push(string(index)));
            (0..30).for_each(|index| other.push(string(index)));
            one.finish();
            other.finish();
            assert_eq!((one.ends, one.bytes, one.validity), (other.ends, other.bytes, other.validity));
            assert_eq!(one.null_count, other.null_count);
        }
    }
}
