//! Rows that somebody else keeps in Arrow's columns; `kernel/reference/topic_batches.py`, rule 1, says which.
//!
//! Rule 1: nothing is copied: the columns are slices of the memory that the array's owner keeps until it is released.
//! Rule 2: the owner's promises are Arrow's (buffers as long as the lengths say, ends that never fall). What can be
//!         checked without knowing a buffer's length is checked once, before any row is read.

use std::ffi::{CStr, c_void};
use std::slice;

use crate::arrow_ffi::{ArrowArray, ArrowSchema};
use crate::errors::{Fault, Result};

const WANTED: &str = "rows are columns of partition int32, timestamp int64, key binary, value binary and \
                      headers list<struct<key: string, value: binary>>, in this order";
const COLUMNS: [(&CStr, &CStr); 5] =
    [(c"partition", c"i"), (c"timestamp", c"l"), (c"key", c"z"), (c"value", c"z"), (c"headers", c"+l")];

/// The columns of some rows.
#[derive(Debug)]
pub struct Rows<'a> {
    pub count: usize,
    pub partition: Numbers<'a, i32>,
    pub timestamp: Numbers<'a, i64>,
    pub key: Strings<'a>,
    pub value: Strings<'a>,
    pub headers: Headers<'a>,
}

/// A column of numbers.
#[derive(Debug)]
pub struct Numbers<'a, T> {
    values: &'a [T],
    valid: Bits<'a>,
}

/// A column of byte strings.
#[derive(Debug)]
pub struct Strings<'a> {
    ends: &'a [i32],
    bytes: &'a [u8],
    valid: Bits<'a>,
}

/// A column of lists of names and values.
#[derive(Debug)]
pub struct Headers<'a> {
    ends: &'a [i32],
    valid: Bits<'a>,
    header_valid: Bits<'a>,
    pub key: Strings<'a>,
    pub value: Strings<'a>,
}

/// Which rows of a column are not null: a bit each, least significant first, from `start` on.
#[derive(Debug)]
struct Bits<'a> {
    bits: Option<&'a [u8]>,
    start: usize,
}

impl Bits<'_> {
    #[inline]
    fn get(&self, index: usize) -> bool {
        let at = self.start + index;
        self.bits.is_none_or(|bits| bits[at / 8] >> (at % 8) & 1 == 1)
    }
}

impl<T: Copy> Numbers<'_, T> {
    #[inline]
    pub fn get(&self, index: usize) -> Option<T> {
        self.valid.get(index).then(|| self.values[index])
    }
}

impl<'a> Strings<'a> {
    #[inline]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.valid.get(index).then(|| &self.bytes[self.ends[index] as usize..self.ends[index + 1] as usize])
    }
}

impl Headers<'_> {
    /// The range of a row's headers in all headers.
    #[inline]
    pub fn range(&self, index: usize) -> std::ops::Range<usize> {
        if self.valid.get(index) { self.ends[index] as usize..self.ends[index + 1] as usize } else { 0..0 }
    }

    /// Whether the header is valid.
    #[inline]
    pub fn is_header(&self, at: usize) -> bool {
        self.header_valid.get(at)
    }
}

impl<'a> Rows<'a> {
    /// The rows of an array.
    ///
    /// # Safety
    /// Both structures follow Arrow's C data interface, are not released, and stay so for the lifetime that is chosen.
    pub unsafe fn of(schema: &'a ArrowSchema, array: &'a ArrowArray) -> Result<Self> {
        // SAFETY: the caller's promise; `check` compares the types with those that are read below.
        unsafe {
            check(schema)?;
            let (count, start) = (size(array.length)?, size(array.offset)?);
            let child = |index: usize| Part::of(nth(array, index)?, start, count);
            let headers = child(4)?;
            let ends = headers.ends()?;
            let total = ends.last().map_or(0, |end| *end as usize);
            let header = Part::of(nth(headers.array, 0)?, 0, total)?;
            let field = |index: usize| Part::of(nth(header.array, index)?, header.start, total);
            Ok(Self {
                count,
                partition: child(0)?.numbers()?,
                timestamp: child(1)?.numbers()?,
                key: child(2)?.strings()?,
                value: child(3)?.strings()?,
                headers: Headers {
                    ends,
                    valid: headers.valid()?,
                    header_valid: header.valid()?,
                    key: field(0)?.strings()?,
                    value: field(1)?.strings()?,
                },
            })
        }
    }

    /// The approximate size of the rows in bytes.
    pub fn size(&self) -> usize {
        self.key.bytes.len() + self.value.bytes.len() + self.headers.value.bytes.len()
    }
}

/// A range of rows of an array, counted from the start of its buffers.
struct Part<'a> {
    array: &'a ArrowArray,
    start: usize,
    count: usize,
}

impl<'a> Part<'a> {
    fn of(array: &'a ArrowArray, start: usize, count: usize) -> Result<Self> {
        if size(array.length)? < start.saturating_add(count) {
            return wrong("a column is shorter than the others");
        }
        Ok(Self { array, start: start + size(array.offset)?, count })
    }

    /// # Safety
    /// The buffer's elements are of the type `T`, and as many as Arrow promises: `start`, `count` and `more`.
    unsafe fn buffer<T>(&self, index: usize, more: usize) -> Result<&'a [T]> {
        // SAFETY: `buffer_at` gives the array's own buffer; the rest is the caller's promise.
        unsafe {
            let buffer = buffer_at(self.array, index)?;
            if buffer.is_null() {
                return wrong("a column lacks a buffer");
            }
            Ok(slice::from_raw_parts(buffer.cast::<T>().add(self.start), self.count + more))
        }
    }

    /// # Safety
    /// That of `Rows::of`.
    unsafe fn valid(&self) -> Result<Bits<'a>> {
        // SAFETY: the first buffer of every type read here is absent, or has a bit for each row.
        unsafe {
            let buffer = buffer_at(self.array, 0)?;
            let length = (self.start + self.count).div_ceil(8);
            let bits = if buffer.is_null() { None } else { Some(slice::from_raw_parts(buffer.cast::<u8>(), length)) };
            Ok(Bits { bits, start: self.start })
        }
    }

    /// # Safety
    /// That of `Rows::of`, and the array is of numbers of the type `T`.
    unsafe fn numbers<T>(&self) -> Result<Numbers<'a, T>> {
        // SAFETY: the caller's promise.
        unsafe {
            let values = if self.count == 0 { &[] } else { self.buffer(1, 0)? };
            Ok(Numbers { values, valid: self.valid()? })
        }
    }

    /// # Safety
    /// That of `Rows::of`, and the array is of byte strings or lists.
    unsafe fn ends(&self) -> Result<&'a [i32]> {
        if self.count == 0 {
            return Ok(&[0]); // An empty column may have no buffers.
        }
        // SAFETY: the caller's promise; there is one end more than there are rows.
        let ends: &[i32] = unsafe { self.buffer(1, 1)? };
        if ends[0] < 0 || ends.windows(2).any(|pair| pair[0] > pair[1]) {
            return wrong("the ends of a column fall");
        }
        Ok(ends)
    }

    /// # Safety
    /// That of `Rows::of`, and the array is of byte strings.
    unsafe fn strings(&self) -> Result<Strings<'a>> {
        // SAFETY: the caller's promise. The last end says how long the third buffer is at least; where that is 0 it may
        // be absent.
        unsafe {
            let ends = self.ends()?;
            let length = ends.last().map_or(0, |end| *end as usize);
            let bytes: &[u8] = match buffer_at(self.array, 2)? {
                _ if length == 0 => &[],
                buffer if buffer.is_null() => return wrong("a column lacks its bytes"),
                buffer => slice::from_raw_parts(buffer.cast::<u8>(), length),
            };
            Ok(Strings { ends, bytes, valid: self.valid()? })
        }
    }
}

/// # Safety
/// That of `Rows::of`.
unsafe fn nth(array: &ArrowArray, index: usize) -> Result<&ArrowArray> {
    if array.n_children <= index as i64 || array.children.is_null() {
        return wrong(WANTED);
    }
    // SAFETY: there are more children than `index`, each a structure that lives as long as its parent.
    Ok(unsafe { &**array.children.add(index) })
}

/// # Safety
/// That of `Rows::of`.
unsafe fn buffer_at(array: &ArrowArray, index: usize) -> Result<*const c_void> {
    if array.n_buffers <= index as i64 || array.buffers.is_null() {
        return wrong("a column has too few buffers");
    }
    // SAFETY: there are more buffers than `index`.
    Ok(unsafe { *array.buffers.add(index) })
}

/// # Safety
/// That of `Rows::of`.
unsafe fn check(schema: &ArrowSchema) -> Result<()> {
    // SAFETY: the caller's promise: formats and names end with a zero, children are as many as `n_children` says.
    unsafe {
        let right = is(schema, c"+s", COLUMNS.len())
            && COLUMNS.iter().enumerate().all(|(index, (name, format))| {
                let column = &**schema.children.add(index);
                let named = !column.name.is_null() && CStr::from_ptr(column.name) == *name;
                named && is(column, format, usize::from(*format == c"+l"))
            });
        let header = |headers: &ArrowSchema| {
            let item = &**headers.children;
            is(item, c"+s", 2) && is(&**item.children, c"u", 0) && is(&**item.children.add(1), c"z", 0)
        };
        if right && header(&**schema.children.add(4)) { Ok(()) } else { wrong(WANTED) }
    }
}

/// # Safety
/// That of `Rows::of`.
unsafe fn is(schema: &ArrowSchema, format: &CStr, children: usize) -> bool {
    // SAFETY: the caller's promise.
    !schema.format.is_null()
        && unsafe { CStr::from_ptr(schema.format) } == format
        && schema.n_children == children as i64
}

fn size(number: i64) -> Result<usize> {
    usize::try_from(number).or_else(|_| wrong("a column has a negative length"))
}

fn wrong<T>(text: &str) -> Result<T> {
    Err(Fault::Mistake(text.into()))
}
