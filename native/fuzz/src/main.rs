//! Feeds mutated batches to every decoder of the kernel for a bounded time.
//!
//!     ottla-kernel-fuzz SECONDS SEED CORPUS_DIRECTORY...
//!
//! Rule 1: a directory's `*.hex` files (lines of hex; `#` begins a comment) are run as they are, then mutated.
//! Rule 2: an input that breaks a promise is written to `fuzz-SEED-NUMBER.hex`, with the promise, and the run fails;
//!         once the defect is mended, the file joins `tests/unit/kernel/kept`, which both kernels' tests and every later run read.
//! Rule 3: the same seed gives the same inputs in the same order.

mod mutate;
mod promises;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use std::{env, fs};

use mutate::{Mutator, seeds};

const BETWEEN_LOOKS_AT_THE_CLOCK: u64 = 256;
/// Work is proportional to the input and to what it may unpack to; more than this is a hang.
const SLOW: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let given: Vec<String> = env::args().skip(1).collect();
    let (Some(seconds), Some(seed)) = (number(&given, 0), number(&given, 1)) else {
        eprintln!("usage: ottla-kernel-fuzz SECONDS SEED CORPUS_DIRECTORY...");
        return ExitCode::from(2);
    };
    let mut corpus: Vec<Vec<u8>> = given[2..].iter().flat_map(|directory| read_corpus(Path::new(directory))).collect();
    corpus.extend(seeds());
    std::panic::set_hook(Box::new(|_| ())); // What a panic says is printed with its input.
    let (mut broken, mut executions) = (0, 0_u64);
    for input in &corpus {
        executions += 1;
        broken += u32::from(!run(input, seed, executions));
    }
    let (started, limit) = (Instant::now(), Duration::from_secs(seconds));
    let mut mutator = Mutator::new(seed, corpus);
    while broken == 0 && (executions % BETWEEN_LOOKS_AT_THE_CLOCK != 0 || started.elapsed() < limit) {
        let input = mutator.next();
        executions += 1;
        broken += u32::from(!run(&input, seed, executions));
    }
    let seconds = started.elapsed().as_secs_f64();
    println!("seed {seed}: {executions} executions in {seconds:.1} s, {broken} broke a promise");
    if broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn number(given: &[String], at: usize) -> Option<u64> {
    given.get(at)?.parse().ok()
}

/// Whether the kernel keeps its promises on `input`.
fn run(input: &[u8], seed: u64, execution: u64) -> bool {
    let started = Instant::now();
    let mut why = match catch_unwind(AssertUnwindSafe(|| promises::check(input))) {
        Ok(()) => None,
        Err(panic) => Some(
            panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string))
                .unwrap_or_default(),
        ),
    };
    if started.elapsed() > SLOW {
        why.get_or_insert_with(|| format!("it took {:.1} s", started.elapsed().as_secs_f64()));
    }
    let Some(why) = why else { return true };
    let path = PathBuf::from(format!("fuzz-{seed}-{execution}.hex"));
    let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
    println!("{} bytes break a promise: {why}", input.len());
    match fs::write(&path, format!("# {}\n{hex}\n", why.replace('\n', " "))) {
        Ok(()) => println!("kept in {}", path.display()),
        Err(error) => println!("cannot write {}: {error}\n{hex}", path.display()),
    }
    false
}

fn read_corpus(directory: &Path) -> Vec<Vec<u8>> {
    let mut paths: Vec<PathBuf> = fs::read_dir(directory)
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    paths.retain(|path| path.extension().is_some_and(|suffix| suffix == "hex"));
    paths.sort();
    paths.iter().filter_map(|path| fs::read_to_string(path).ok()).map(|text| from_hex(&text)).collect()
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .flat_map(|line| line.chars().filter_map(|digit| digit.to_digit(16)))
        .collect();
    digits.chunks_exact(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}
