//! Captures, as tshark reads them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::PERF_PORT;
use crate::dissection::OPTIONS;
use crate::process::Running;

/// tshark reads some ten thousand frames a second.
const LIMIT: Duration = Duration::from_mins(1);

/// A capture, dissected: one line of fields per frame.
pub struct Capture {
    frames: Vec<Frame>,
    verdicts: Verdicts,
}

/// FPDUs by what tshark thinks of their CRC. It says so in words only, and not in a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdicts {
    /// The CRC is what tshark computes.
    pub good: usize,
    /// It is another.
    pub bad: usize,
}

/// The fields of one frame. A field that occurs several times has several values.
pub struct Frame(BTreeMap<&'static str, Vec<String>>);

/// What is asked of each frame.
const FIELDS: [&str; 14] = [
    "frame.number",
    "_ws.malformed",
    "_ws.expert.message",
    "ip.checksum.status",
    "tcp.checksum.status",
    "ip.version",
    "tcp.dstport",
    "tcp.len",
    "iwarp_mpa.req",
    "iwarp_mpa.rep",
    "iwarp_mpa.rev",
    "iwarp_mpa.ulpdulength",
    "iwarp_rdma.opcode",
    "iwarp_rdma.rdmardsz",
];

impl Capture {
    /// Has tshark dissect what `xwarp perf` captured.
    pub fn dissect(file: &Path) -> Self {
        Self::dissect_port(file, PERF_PORT)
    }

    /// Has tshark dissect the TCP connections of this port in a file.
    pub fn dissect_port(file: &Path, port: u16) -> Self {
        let mut arguments = vec!["-T", "fields"];
        arguments.extend([
            "-E",
            "separator=/t",
            "-E",
            "aggregator=;",
            "-E",
            "occurrence=a",
        ]);
        arguments.extend(FIELDS.iter().flat_map(|field| ["-e", field]));
        let frames: Vec<Frame> = tshark(file, port, &arguments)
            .lines()
            .map(Frame::parse)
            .collect();
        assert!(
            !frames.is_empty(),
            "tshark finds no TCP to port {port} in {}",
            file.display()
        );
        let text = tshark(file, port, &["-O", "iwarp_mpa"]);
        let verdicts = Verdicts {
            good: text.matches("(Good CRC32)").count(),
            bad: text.matches("(Bad CRC32").count(),
        };
        Self { frames, verdicts }
    }

    /// What tshark thinks of the CRCs.
    pub fn verdicts(&self) -> Verdicts {
        self.verdicts
    }

    /// FPDUs that tshark finds.
    pub fn fpdus(&self) -> usize {
        let fpdus = |frame: &Frame| frame.all("iwarp_mpa.ulpdulength").len();
        self.frames.iter().map(fpdus).sum()
    }

    /// All frames.
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// Frames in which this field occurs.
    pub fn with<'a>(&'a self, field: &'static str) -> impl Iterator<Item = &'a Frame> {
        self.frames.iter().filter(move |frame| frame.has(field))
    }

    /// How often each value of a field occurs.
    pub fn count(&self, field: &'static str) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for value in self.frames.iter().flat_map(|frame| frame.all(field)) {
            *counts.entry(value.as_str()).or_default() += 1;
        }
        counts
    }
}

fn tshark(file: &Path, port: u16, arguments: &[&str]) -> String {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file).args(OPTIONS);
    command
        .args(["-Y", &format!("tcp.port == {port}")])
        .args(arguments);
    Running::start(command)
        .finish_within(LIMIT)
        .succeeded()
        .stdout
}

impl Frame {
    fn parse(line: &str) -> Self {
        let values = line.split('\t').map(|cell| {
            let values = cell.split(';').filter(|value| !value.is_empty());
            values.map(str::to_owned).collect()
        });
        Self(FIELDS.into_iter().zip(values).collect())
    }

    /// All values of a field.
    pub fn all(&self, field: &'static str) -> &[String] {
        self.0.get(field).map_or(&[], Vec::as_slice)
    }

    /// Whether a field occurs.
    pub fn has(&self, field: &'static str) -> bool {
        !self.all(field).is_empty()
    }

    /// For messages: everything that tshark said.
    pub fn text(&self) -> String {
        let said = self.0.iter().filter(|(_, values)| !values.is_empty());
        let said: Vec<String> = said
            .map(|(field, values)| format!("{field} {}", values.join(";")))
            .collect();
        said.join(", ")
    }
}
