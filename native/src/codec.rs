//! The four compressions of record batches, as Kafka's clients write and read them.
//!
//! Rule 1: `decompress` holds at most `allowance(...)` bytes of output, whatever the input claims; what would be larger
//!         is refused as a bomb. Its output is complete: a stream that is cut off, or followed by anything, is corrupt.
//! Rule 2: what is written, every Kafka client reads: gzip without a name, snappy in the xerial framing with blocks of
//!         32 KiB, lz4 frames of independent 64 KiB blocks without a content checksum, zstd frames.
//! Rule 3: what any client writes is read: snappy bare (librdkafka) or framed (Java), gzip in several members.
//! Rule 4: levels mean what Kafka's `compression.{gzip,lz4,zstd}.level` mean; None is Kafka's default.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt::Display;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use zstd_safe::{CCtx, CParameter, DCtx};

use crate::batch::Codec;
use crate::errors::{Fault, Result};
use crate::lz4;

/// No batch may unpack to more.
pub const LIMIT: usize = 64 * 1024 * 1024;
pub const RATIO: usize = 1000;
/// Below this much output the ratio does not count. A producer fills a batch by the ratio that it expects from earlier
/// ones: of dull records Java's packs some 30 MB into the 16 KiB of an ordinary batch.
const ALWAYS_ALLOWED: usize = 32 * 1024 * 1024;

const GZIP_WINDOW_BITS: u8 = 15;
const GZIP_HEADER_AND_TRAILER: usize = 18;

const XERIAL_MAGIC: &[u8] = b"\x82SNAPPY\0";
const XERIAL_HEADER: &[u8] = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01"; // version 1, readable by version 1
const XERIAL_BLOCK: usize = 32 * 1024;

const ZSTD_NO_ROOM: &str = "Destination buffer is too small";
const ZSTD_DEFAULT: i32 = 3;
const ZSTD_LEVEL_MAX: i32 = 22;
/// The largest window readers of a stream accept, the library's default.
const ZSTD_WINDOW_MAX: u64 = 1 << 27;

thread_local! {
    /// A context takes more time to make than an ordinary batch to unpack.
    static ZSTD_READER: RefCell<DCtx<'static>> = RefCell::new(DCtx::create());
}

/// `data` compressed with `codec`.
pub fn compress(codec: Codec, data: &[u8], level: Option<i32>) -> Result<Vec<u8>> {
    match codec {
        Codec::None => Ok(data.to_vec()),
        Codec::Gzip => gzip(data, level),
        Codec::Snappy => snappy(data),
        Codec::Lz4 => lz4::compress(data, level),
        Codec::Zstd => zstd(data, level),
    }
}

/// What was compressed into `data`: `data` itself if it is not compressed.
pub fn decompress(codec: Codec, data: &[u8], limit: usize, ratio: usize) -> Result<Cow<'_, [u8]>> {
    let allowed = allowance(data.len(), limit, ratio);
    let out = match codec {
        Codec::None => return Ok(Cow::Borrowed(data)),
        Codec::Gzip => gunzip(data, allowed),
        Codec::Snappy => unsnappy(data, allowed),
        Codec::Lz4 => lz4::decompress(data, allowed),
        Codec::Zstd => unzstd(data, allowed),
    };
    out.map(Cow::Owned)
}

/// The number of bytes that `compressed` bytes may unpack to.
pub fn allowance(compressed: usize, limit: usize, ratio: usize) -> usize {
    compressed.saturating_mul(ratio).max(ALWAYS_ALLOWED).min(limit)
}

pub(crate) fn bomb(codec: Codec, compressed: usize, allowed: usize) -> Fault {
    let name = codec.name();
    Fault::Bomb(format!("{compressed} bytes of {name} unpack to more than the {allowed} bytes allowed"))
}

pub(crate) fn damaged(codec: Codec, why: impl Display) -> Fault {
    Fault::Corrupt(format!("the {} stream is damaged: {why}", codec.name()))
}

/// Grow the output to twice its size, within what is allowed plus one byte, which reveals a bomb.
pub(crate) fn grow(out: &mut Vec<u8>, first: usize, allowed: usize) {
    let wanted = if out.is_empty() { first } else { out.len().saturating_mul(2) };
    out.reserve_exact(wanted.min(allowed + 1).max(out.len() + 1) - out.len());
}

fn gzip(data: &[u8], level: Option<i32>) -> Result<Vec<u8>> {
    let level = match level {
        None | Some(-1) => Compression::default(),
        Some(level @ 0..=9) => Compression::new(level as u32),
        Some(other) => return Err(Fault::Mistake(format!("gzip has levels -1 to 9, not {other}"))),
    };
    let mut stream = Compress::new_gzip(level, GZIP_WINDOW_BITS);
    let mut out = Vec::with_capacity(data.len() / 2 + GZIP_HEADER_AND_TRAILER + 64);
    loop {
        let rest = &data[stream.total_in() as usize..];
        match stream.compress_vec(rest, &mut out, FlushCompress::Finish) {
            Ok(Status::StreamEnd) => return Ok(out),
            Ok(_) => out.reserve(out.len().max(1024)),
            Err(error) => return Err(Fault::Mistake(format!("gzip cannot compress: {error}"))),
        }
    }
}

fn gunzip(data: &[u8], allowed: usize) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut rest = data;
    loop {
        let mut member = Decompress::new_gzip(GZIP_WINDOW_BITS);
        loop {
            if out.len() == out.capacity() {
                grow(&mut out, data.len().saturating_mul(4), allowed);
            }
            let (read, written) = (member.total_in() as usize, out.len());
            let status = member
                .decompress_vec(&rest[read..], &mut out, FlushDecompress::None)
                .map_err(|error| damaged(Codec::Gzip, error))?;
            if out.len() > allowed {
                return Err(bomb(Codec::Gzip, data.len(), allowed));
            }
            if status == Status::StreamEnd {
                break;
            }
            if member.total_in() as usize == read && out.len() == written && out.len() < out.capacity() {
                return Err(damaged(Codec::Gzip, "it ends early"));
            }
        }
        rest = &rest[member.total_in() as usize..];
        if rest.is_empty() {
            return Ok(out);
        }
    }
}

fn snappy(data: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = snap::raw::Encoder::new();
    let mut out = Vec::with_capacity(XERIAL_HEADER.len() + data.len() / 2);
    out.extend_from_slice(XERIAL_HEADER);
    for block in data.chunks(XERIAL_BLOCK) {
        let size_at = out.len();
        let start = size_at + 4;
        out.resize(start + snap::raw::max_compress_len(block.len()), 0);
        let size = encoder
            .compress(block, &mut out[start..])
            .map_err(|error| Fault::Mistake(format!("snappy cannot compress: {error}")))?;
        out[size_at..start].copy_from_slice(&(size as u32).to_be_bytes());
        out.truncate(start + size);
    }
    Ok(out)
}

fn unsnappy(data: &[u8], allowed: usize) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    if !data.starts_with(XERIAL_MAGIC) {
        unsnappy_block(data, &mut out, data.len(), allowed)?;
        return Ok(out);
    }
    let mut position = 0;
    while position < data.len() {
        let rest = &data[position..];
        if rest.starts_with(XERIAL_MAGIC) {
            position += XERIAL_HEADER.len(); // Framed streams may be concatenated.
            continue;
        }
        let size = rest.iter().take(4).fold(0, |size, byte| size << 8 | usize::from(*byte));
        position += 4;
        let left = data.len() as i64 - position as i64;
        if size == 0 || size as i64 > left {
            return Err(damaged(Codec::Snappy, format!("a block claims {size} bytes, {left} are left")));
        }
        unsnappy_block(&data[position..position + size], &mut out, data.len(), allowed)?;
        position += size;
    }
    if position != data.len() {
        return Err(damaged(Codec::Snappy, "it ends inside a frame's header"));
    }
    Ok(out)
}

fn unsnappy_block(block: &[u8], out: &mut Vec<u8>, compressed: usize, allowed: usize) -> Result<()> {
    let why = |error| damaged(Codec::Snappy, error);
    let (start, allowed) = (out.len(), allowed - out.len());
    let size = snap::raw::decompress_len(block).map_err(why)?; // The block's own claim: compare before allocating.
    if size > allowed {
        return Err(bomb(Codec::Snappy, compressed, allowed));
    }
    out.resize(start + size, 0);
    let written = snap::raw::Decoder::new().decompress(block, &mut out[start..]).map_err(why)?;
    out.truncate(start + written);
    Ok(())
}

fn zstd(data: &[u8], level: Option<i32>) -> Result<Vec<u8>> {
    let level = level.unwrap_or(ZSTD_DEFAULT);
    if level > ZSTD_LEVEL_MAX {
        return Err(Fault::Mistake(format!("zstd has levels up to {ZSTD_LEVEL_MAX}, not {level}")));
    }
    let mut out = Vec::with_capacity(zstd_safe::compress_bound(data.len()));
    let mut context = CCtx::create();
    context
        .set_parameter(CParameter::CompressionLevel(level))
        .and_then(|_| context.compress2(&mut out, data))
        .map_err(|code| Fault::Mistake(format!("zstd cannot compress: {}", zstd_safe::get_error_name(code))))?;
    Ok(out)
}

fn unzstd(data: &[u8], allowed: usize) -> Result<Vec<u8>> {
    let why = |code| {
        let name = zstd_safe::get_error_name(code);
        damaged(Codec::Zstd, format!("{name} ({allowed} bytes of output allowed)"))
    };
    let claimed = zstd_safe::get_frame_content_size(data)
        .map_err(|_| damaged(Codec::Zstd, "its header says no content size and no lack of one"))?;
    if claimed.is_some_and(|size| size > allowed as u64) {
        return Err(bomb(Codec::Zstd, data.len(), allowed));
    }
    let taken = zstd_safe::find_frame_compressed_size(data).map_err(why)?;
    if taken < data.len() {
        return Err(damaged(Codec::Zstd, format!("{} bytes follow its end", data.len() - taken)));
    }
    if claimed.is_none() && zstd_window(data) > ZSTD_WINDOW_MAX {
        return Err(damaged(Codec::Zstd, "its window is larger than readers of a stream accept"));
    }
    // Without a claim the blocks' headers bound the output. Memory is reserved here and touched only as it fills.
    let bound = match claimed {
        Some(size) => size,
        None => zstd_safe::decompress_bound(data).map_err(why)?,
    };
    let mut out = Vec::with_capacity(bound.min(allowed as u64) as usize);
    match ZSTD_READER.with_borrow_mut(|reader| reader.decompress(&mut out, data)) {
        Ok(_) => Ok(out),
        // A frame without a claim, as Java writes them, shows only when it is unpacked that there is more than allowed.
        Err(code) if bound > allowed as u64 && zstd_safe::get_error_name(code) == ZSTD_NO_ROOM => {
            Err(bomb(Codec::Zstd, data.len(), allowed))
        }
        Err(code) => Err(why(code)),
    }
}

/// The window a frame without a content size asks for: its sixth byte is an exponent and eighths of its power.
fn zstd_window(frame: &[u8]) -> u64 {
    let Some(descriptor) = frame.get(5) else { return 0 };
    let base = 1u64 << (10 + (descriptor >> 3));
    base + base / 8 * u64::from(descriptor & 7)
}
