//! lz4 frames. The library's frame functions are called directly, because wrappers hide what follows a frame's end.

use std::ffi::CStr;
use std::ptr;

use lz4_sys::{
    BlockChecksum, BlockMode, BlockSize, ContentChecksum, FrameType, LZ4F_VERSION, LZ4F_compressBegin,
    LZ4F_compressBound, LZ4F_compressEnd, LZ4F_compressUpdate, LZ4F_createCompressionContext,
    LZ4F_createDecompressionContext, LZ4F_decompress, LZ4F_freeCompressionContext, LZ4F_freeDecompressionContext,
    LZ4F_getErrorName, LZ4F_isError, LZ4FCompressionContext, LZ4FDecompressionContext, LZ4FFrameInfo, LZ4FPreferences,
};

use crate::batch::Codec;
use crate::codec::{bomb, damaged, grow};
use crate::errors::{Fault, Result};

/// Kafka's number for the fast compressor; every other level is the high compressor's.
const KAFKA_DEFAULT: i32 = 9;
const HIGH_MIN: i32 = 3;
const HIGH_MAX: i32 = 12;
const FLAGS_AT: usize = 4;
const INDEPENDENT_BLOCKS: u8 = 0x20;
const FRAME_HEADER_MAX: usize = 19;

pub fn compress(data: &[u8], level: Option<i32>) -> Result<Vec<u8>> {
    let level = match level {
        None | Some(KAFKA_DEFAULT) => 0,
        Some(level) => level.clamp(HIGH_MIN, HIGH_MAX),
    };
    let preferences = LZ4FPreferences {
        frame_info: LZ4FFrameInfo {
            block_size_id: BlockSize::Max64KB,
            block_mode: BlockMode::Independent,
            content_checksum_flag: ContentChecksum::NoChecksum,
            frame_type: FrameType::Frame,
            content_size: 0,
            dict_id: 0,
            block_checksum_flag: BlockChecksum::NoBlockChecksum,
        },
        compression_level: level as u32,
        auto_flush: 1, // All of the input is there at once: nothing is buffered.
        favor_dec_speed: 0,
        reserved: [0; 3],
    };
    let context = Compression::create()?;
    // SAFETY: `preferences` is a valid structure of the library's; the function reads it only.
    let room = FRAME_HEADER_MAX + unsafe { LZ4F_compressBound(data.len(), &preferences) };
    let mut out: Vec<u8> = Vec::with_capacity(room);
    let mut written = 0;
    // SAFETY: the context was created and is freed by `context` only; each call gets the part of `out`'s memory that
    // is not written yet and its exact size, and returns how much of it it wrote.
    unsafe {
        let at = |written: usize, out: &mut Vec<u8>| out.as_mut_ptr().add(written);
        written += code(LZ4F_compressBegin(context.0, at(written, &mut out), room - written, &preferences), mistake)?;
        let (source, size) = (data.as_ptr(), data.len());
        let to = at(written, &mut out);
        written += code(LZ4F_compressUpdate(context.0, to, room - written, source, size, ptr::null()), mistake)?;
        let to = at(written, &mut out);
        written += code(LZ4F_compressEnd(context.0, to, room - written, ptr::null()), mistake)?;
        out.set_len(written);
    }
    Ok(out)
}

pub fn decompress(data: &[u8], allowed: usize) -> Result<Vec<u8>> {
    if data.get(FLAGS_AT).is_some_and(|flags| flags & INDEPENDENT_BLOCKS == 0) {
        // The library could read it, but Kafka's consumers cannot: such a batch must not get into
        // the log.
        let why = "its blocks depend on each other, which Kafka's clients cannot read";
        return Err(damaged(Codec::Lz4, why));
    }
    let context = Decompression::create()?;
    let mut out: Vec<u8> = Vec::new();
    let mut position = 0;
    loop {
        if out.len() == out.capacity() {
            grow(&mut out, data.len().saturating_mul(4), allowed);
        }
        let rest = &data[position..];
        let (mut taken, mut written) = (rest.len(), out.capacity() - out.len());
        // SAFETY: the context was created and is freed by `context` only; the source is `rest` with its size, the
        // target the unwritten part of `out`'s memory with its size; on return `written` bytes of it are initialised.
        let more = unsafe {
            let to = out.as_mut_ptr().add(out.len());
            let more = LZ4F_decompress(context.0, to, &mut written, rest.as_ptr(), &mut taken, ptr::null());
            let more = code(more, |why| damaged(Codec::Lz4, why))?;
            out.set_len(out.len() + written);
            more
        };
        position += taken;
        if out.len() > allowed {
            return Err(bomb(Codec::Lz4, data.len(), allowed));
        }
        if more == 0 {
            break;
        }
        if taken == 0 && written == 0 && out.len() < out.capacity() {
            return Err(damaged(Codec::Lz4, "it ends early"));
        }
    }
    if position < data.len() {
        return Err(damaged(Codec::Lz4, format!("{} bytes follow its end", data.len() - position)));
    }
    Ok(out)
}

/// The library's result, unless it is one of its errors.
fn code(returned: usize, fault: impl FnOnce(&str) -> Fault) -> Result<usize> {
    // SAFETY: both look the number up in a table; the name is a constant, terminated string.
    unsafe {
        if LZ4F_isError(returned) == 0 {
            return Ok(returned);
        }
        Err(fault(&CStr::from_ptr(LZ4F_getErrorName(returned)).to_string_lossy()))
    }
}

fn mistake(why: &str) -> Fault {
    Fault::Mistake(format!("lz4 cannot compress: {why}"))
}

struct Compression(LZ4FCompressionContext);

impl Compression {
    fn create() -> Result<Self> {
        let mut context = LZ4FCompressionContext(ptr::null_mut());
        // SAFETY: the function writes the pointer it allocated into `context`, or returns an error.
        code(unsafe { LZ4F_createCompressionContext(&mut context, LZ4F_VERSION) }, mistake)?;
        Ok(Self(context))
    }
}

impl Drop for Compression {
    fn drop(&mut self) {
        // SAFETY: the context was created by `create` and is freed here only.
        unsafe { LZ4F_freeCompressionContext(self.0) };
    }
}

struct Decompression(LZ4FDecompressionContext);

impl Decompression {
    fn create() -> Result<Self> {
        let mut context = LZ4FDecompressionContext(ptr::null_mut());
        // SAFETY: the function writes the pointer it allocated into `context`, or returns an error.
        code(unsafe { LZ4F_createDecompressionContext(&mut context, LZ4F_VERSION) }, mistake)?;
        Ok(Self(context))
    }
}

impl Drop for Decompression {
    fn drop(&mut self) {
        // SAFETY: the context was created by `create` and is freed here only.
        unsafe { LZ4F_freeDecompressionContext(self.0) };
    }
}
