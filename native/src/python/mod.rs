//! The module `ottla.kernel._native`: the kernel's functions as Python calls them.
//!
//! Rule 1: signatures and result types are those of `ottla.kernel.reference`; the façade `ottla.kernel` picks one.
//! Rule 2: every function's work goes through `call`, which lets other threads run meanwhile if the work is long, or,
//!         where it makes objects, through `guarded`; neither lets a panic out.

mod arrow;
mod batch;
mod buffer;
mod codec;
mod compact;
mod control;
mod decode;
mod encode;
mod errors;
mod produce;
mod produce_request;
mod scan;
mod topic_batches;

use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::prelude::*;

use crate::batch::{CODEC_MASK, Header};
use crate::errors::{Fault, Result};

/// From so many bytes on, work takes longer than handing the interpreter to another thread and back.
const LONG_PLAIN: usize = 64 * 1024;
/// The same where bytes are compressed or decompressed.
const LONG_COMPRESSED: usize = 4 * 1024;

/// Whether work on all records of the batch is long.
fn is_long(header: &Header) -> bool {
    header.size() >= if header.attributes & CODEC_MASK == 0 { LONG_PLAIN } else { LONG_COMPRESSED }
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    arrow::register(module)?;
    codec::register(module)?;
    compact::register(module)?;
    control::register(module)?;
    decode::register(module)?;
    encode::register(module)?;
    produce::register(module)?;
    produce_request::register(module)?;
    scan::register(module)?;
    topic_batches::register(module)?;
    Ok(())
}

/// The result of `work`, with its fault as the exception Python knows.
fn call<T: Send>(py: Python<'_>, long: bool, work: impl FnOnce() -> Result<T> + Send) -> PyResult<T> {
    let guarded = || {
        // Nothing of a function that panicked is used again: its values are dropped with it.
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(Fault::of_panic(&*panic)))
    };
    let result = if long { py.detach(guarded) } else { guarded() };
    result.map_err(|fault| errors::to_python(py, fault))
}

/// The same for work that holds or makes objects of Python's on its way, and so keeps the interpreter.
fn guarded<T>(py: Python<'_>, work: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(errors::to_python(py, Fault::of_panic(&*panic))))
}
