//! The kernel in native code: what `src/ottla/kernel/reference` specifies, record by record, at the machine's speed.
//!
//! Rule 1: stateless. Bytes in, values out; no I/O, no clock, no logging. Any function may run in any thread.
//! Rule 2: whatever bytes arrive from outside, the answer is a value or an `errors::Fault`, in time and memory
//!         proportional to the input and to the limits of decompression.
//! Rule 3: `python` alone knows Python. Everything else is tested and fuzzed without it.
//! Rule 4: no `unsafe` without the reason why it is sound beside it.

pub mod arrow;
pub mod arrow_ffi;
pub mod arrow_rows;
pub mod batch;
pub mod codec;
pub mod compact;
pub mod control;
pub mod crc;
pub mod decode;
pub mod decode_fetched;
pub mod encode;
pub mod errors;
pub mod lookup;
mod lz4;
pub mod murmur;
pub mod offset_map;
pub mod produce;
pub mod produce_request;
pub mod scan;
pub mod topic_batches;
pub mod varint;
pub mod verdict;

#[cfg(feature = "python")]
mod python;
