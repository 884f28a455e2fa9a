//! Bytes that belong to Python: `bytes`, `bytearray`, `memoryview`, anything with a contiguous buffer.

use std::{ptr, slice};

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyMemoryView, PySlice};

/// A buffer held for the time of a call: its owner can neither free nor resize it meanwhile.
pub struct Bytes(PyBuffer<u8>);

impl Bytes {
    pub fn as_slice(&self) -> &[u8] {
        if self.0.len_bytes() == 0 {
            return &[]; // The pointer of an empty buffer may be null.
        }
        // SAFETY: the buffer is contiguous (checked when it was taken), alive and of this size as long as it is held.
        // Who calls the kernel does not write into the bytes it handed over until the call returns (rule of
        // `ottla.kernel`); a caller who did would get a wrong answer about its own bytes: every access is checked
        // against the size, which cannot change, and no value read is used as an index unchecked.
        unsafe { slice::from_raw_parts(self.0.buf_ptr().cast::<u8>(), self.0.len_bytes()) }
    }

    pub fn len(&self) -> usize {
        self.0.len_bytes()
    }

    /// Write `bytes` at `position`. The interpreter is held: no other thread of Python's reads them half-written.
    pub fn write(&mut self, _py: Python<'_>, position: usize, bytes: &[u8]) -> PyResult<()> {
        if self.0.readonly() {
            return Err(PyTypeError::new_err("the batch is read-only; hand over a bytearray, or a view of one"));
        }
        let len = self.len();
        if position.checked_add(bytes.len()).is_none_or(|end| end > len) {
            let size = bytes.len();
            return Err(PyValueError::new_err(format!("{size} bytes do not fit at {position} of a buffer of {len}")));
        }
        // SAFETY: the buffer is writable, contiguous and held; the range lies inside it (all checked above); `bytes` is
        // never a part of it, and `&mut self` rules out a slice of it in this call.
        unsafe {
            let to = self.0.buf_ptr().cast::<u8>().add(position);
            ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
        Ok(())
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Bytes {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let buffer = PyBuffer::get(&object)?;
        if !buffer.is_c_contiguous() {
            return Err(PyTypeError::new_err("the bytes lie apart in memory; hand over a contiguous buffer"));
        }
        Ok(Self(buffer))
    }
}

/// The bytes from `start` to `end` of a view. (`PySlice::new` of pyo3 0.30 never lets go of the numbers it is made of.)
pub fn part_of<'py>(view: &Bound<'py, PyMemoryView>, start: usize, end: usize) -> PyResult<Bound<'py, PyAny>> {
    view.get_item(view.py().get_type::<PySlice>().call1((start, end))?)
}
