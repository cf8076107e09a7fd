//! `cargo xtask vm`: runs the kernel matrix. Each of Debian's cloud kernels is booted under qemu with our suites inside.
//!
//!     apt -> vmlinuz --+
//!                      +-> qemu -> serial console -> results -> table
//!     cargo -> image --+
//!
//! Only qemu, busybox and cpio are installed: kernels are unpacked into the target directory.

mod console;
mod image;
mod kernel;
mod machine;
mod record;
mod table;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::demo::interrupt::Interrupt;
use crate::outcome::Ending;
use crate::setup::{self, Install, Need};
use crate::test::Totals;
use crate::{tool, workspace};

use console::Expectation;
use table::Row;

/// The long-term kernels of Debian 11, 12 and 13, and the newest that backports has.
const MATRIX: [&str; 4] = ["5.10", "6.1", "6.12", NEWEST];
const NEWEST: &str = "newest";
/// The kernel of `--short`: the oldest, whose verifier is the strictest about the stack.
const SHORT: &str = "6.1";
/// The kernel of this machine, which needs no qemu.
const HERE: &str = "here";
/// The kernels of `--loads`: every kernel on which the programs load.
const LOADING: [&str; 4] = ["6.1", "6.12", NEWEST, HERE];
/// The oldest kernel that is supported. On older ones the binary must refuse, with a sentence and exit code 5.
const FLOOR: (u32, u32) = (6, 1);

pub(crate) const NEEDS: [Need; 3] = [
    Need::Executable { name: "qemu-system-x86_64", package: "qemu-system-x86" },
    Need::Executable { name: "busybox", package: "busybox-static" },
    Need::Executable { name: "cpio", package: "cpio" },
];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only this kernel series, such as 6.1, or `newest`, or `here` for that of this machine (with --loads); may be given several times
    #[arg(long, value_name = "SERIES")]
    kernel: Vec<String>,
    /// Only this suite; may be given several times
    #[arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(image::SUITES))]
    suite: Vec<String>,
    /// How long each kernel may take; by default 600, and 3600 where KVM does not work
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=14400))]
    timeout: Option<u64>,
    /// What a change of the kernel program most easily breaks: that all programs load, and SYN cookies through a restart; on the oldest kernel unless others are named
    #[arg(long, conflicts_with = "suite")]
    short: bool,
    /// Only load the programs, on every kernel and on this machine's: with --record, all that a change of the kernel program asks for
    #[arg(long, conflicts_with_all = ["suite", "short"])]
    loads: bool,
    /// Write what the verifier looked at to tests/verified.txt, against which later runs are held
    #[arg(long)]
    record: bool,
    /// How the results are printed
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Text,
    Json,
}

pub(crate) fn run(options: &Options, install: Install) -> Result<()> {
    if !cfg!(target_arch = "x86_64") {
        bail!("the kernel matrix boots x86-64 kernels; this machine has another architecture");
    }
    setup::ensure(&[&setup::KERNEL_BUILD[..], &NEEDS].concat(), install)?;
    let interrupt = Interrupt::watch()?;
    let asked: Vec<&str> = match &options.kernel[..] {
        [] if options.short => vec![SHORT],
        [] if options.loads => LOADING.to_vec(),
        [] => MATRIX.to_vec(),
        some => some.iter().map(String::as_str).collect(),
    };
    let (here, asked): (Vec<&str>, Vec<&str>) = asked.into_iter().partition(|series| *series == HERE);
    if !here.is_empty() && !options.loads {
        bail!(
            "the suites of this machine's own kernel are those of `cargo xtask test`; `here` is for --loads"
        );
    }
    if !here.is_empty() && !tool::is_root() {
        bail!("loading the programs on this machine needs root");
    }
    // Kernels for qemu are fetched only if some are asked for.
    let kernels = if asked.is_empty() { Vec::new() } else { kernel::obtain(&asked)? };
    let expected = match (options.short, options.loads) {
        (true, _) => Expectation::Short,
        (_, true) => Expectation::Loads,
        _ => Expectation::Suites,
    };
    let suites: Vec<&str> = match &options.suite[..] {
        _ if expected != Expectation::Suites => Vec::new(),
        [] => image::SUITES.to_vec(),
        some => some.iter().map(String::as_str).collect(),
    };
    let mut matrix = Matrix::begin()?;
    if let Some(first) = kernels.iter().find_map(|(_, found)| found.as_ref().ok()) {
        let image = image::pack(&image::Executables::build(&suites)?, &suites)?;
        let host = machine::Host::probe(first, &image, options.timeout, &interrupt)?;
        for (series, found) in &kernels {
            let row = match found {
                Ok(kernel) => boot(&host, kernel, &image, expected, options.record, &interrupt)?,
                Err(why) => Row::without_kernel(series, why),
            };
            matrix.add(row, options.record)?;
        }
    } else if !kernels.is_empty() {
        bail!("no kernel could be had: {}", whys(&kernels));
    }
    if !here.is_empty() {
        eprintln!("vm: this machine");
        let boot = machine::here(&image::Executables::build(&[])?.suites, options.record)?;
        matrix.add(Row::of_this_machine(&boot), options.record)?;
    }
    let rows = &matrix.rows;
    match options.output {
        Output::Text => print!("{}", table::text(rows)),
        Output::Json => println!("{:#}", table::json(rows)),
    }
    if rows.iter().any(|row| row.failed() > 0) { Err(Ending::Told.into()) } else { Ok(()) }
}

/// The kernels that are done. A run takes hours and may be stopped, so the result of a kernel is printed and saved before the next one boots.
struct Matrix {
    rows: Vec<Row>,
    file: PathBuf,
}

impl Matrix {
    /// Begins a run: empties the file, which has the results of the run before.
    fn begin() -> Result<Self> {
        std::fs::create_dir_all(dir()).with_context(|| format!("cannot make {}", dir().display()))?;
        let matrix = Self { rows: Vec::new(), file: dir().join("results.json") };
        matrix.save()?;
        Ok(matrix)
    }

    /// Adds a row and prints it to standard error, because standard output is for the whole table or one document of JSON.
    fn add(&mut self, row: Row, is_recording: bool) -> Result<()> {
        eprintln!("vm: {}", table::line(&row));
        if is_recording {
            eprintln!("vm: wrote {}", record::write(row.verified())?.display());
        }
        self.rows.push(row);
        self.save()
    }

    fn save(&self) -> Result<()> {
        let text = format!("{:#}\n", table::json(&self.rows));
        std::fs::write(&self.file, text).with_context(|| format!("cannot write {}", self.file.display()))
    }
}

/// The kernel of the short form, fetched.
pub(crate) struct ShortKernel(kernel::Kernel);

impl ShortKernel {
    /// Fetches the kernel; `None` if guests cannot run on this machine.
    pub(crate) fn obtain() -> Result<Option<Self>> {
        if !cfg!(target_arch = "x86_64") {
            return Ok(None);
        }
        let (_, found) = kernel::obtain(&[SHORT])?.pop().context("nobody was asked for a kernel")?;
        Ok(Some(Self(found?)))
    }

    /// Boots the kernel with the executables in cargo's messages, and prints the result.
    pub(crate) fn run(&self, built: &[Value]) -> Result<Totals> {
        let interrupt = Interrupt::watch()?;
        let image = image::pack(&image::Executables::among(built)?, &[])?;
        let host = machine::Host::probe(&self.0, &image, None, &interrupt)?;
        let row = boot(&host, &self.0, &image, Expectation::Short, false, &interrupt)?;
        print!("{}", table::text(std::slice::from_ref(&row)));
        Ok(row.totals())
    }
}

/// Runs one kernel from its start to its end.
fn boot(
    host: &machine::Host,
    kernel: &kernel::Kernel,
    image: &Path,
    asked: Expectation,
    is_recording: bool,
    interrupt: &Interrupt,
) -> Result<Row> {
    eprintln!("vm: {} under {}", kernel.release, host.mode());
    let expectation = Expectation::of(&kernel.release, FLOOR, asked);
    let boot = host.boot(kernel, image, expectation.word(), is_recording, interrupt)?;
    let row = Row::from_boot(kernel, host, expectation, &boot);
    if row.failed() > 0 {
        eprintln!("vm: the console is in {}", save(&kernel.release, &boot.console)?.display());
    }
    Ok(row)
}

/// Returns the directory of everything that this command leaves behind.
fn dir() -> PathBuf {
    workspace::target_dir().join("vm")
}

fn whys(kernels: &[(String, Result<kernel::Kernel>)]) -> String {
    let whys = kernels.iter().filter_map(|(_, found)| found.as_ref().err().map(|why| format!("{why:#}")));
    whys.collect::<Vec<_>>().join("; ")
}

fn save(release: &str, console: &str) -> Result<PathBuf> {
    let path = dir().join(format!("console-{release}.txt"));
    std::fs::write(&path, console).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}
