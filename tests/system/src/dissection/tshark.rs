//! tshark, asked for fields.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use xwarp_driver::{MemoryIo, PacketIo, Tap};

/// Checks that are off unless asked for, and the heuristic that finds iWARP behind any TCP port.
///
/// The payload of a Send is not dissected. tshark would take it for SMB Direct or RPC over RDMA,
/// and a Send of no bytes for a malformed one.
pub const OPTIONS: [&str; 10] = [
    "-o",
    "tcp.check_checksum:TRUE",
    "-o",
    "ip.check_checksum:TRUE",
    "--disable-protocol",
    "rpcordma",
    "--disable-protocol",
    "smb_direct",
    "--enable-heuristic",
    "iwarp_mpa_tcp",
];

/// What is asked of each frame.
const FIELDS: [&str; 42] = [
    "frame.number",
    "tcp.stream",
    "tcp.payload",
    "_ws.malformed",
    "_ws.expert.message",
    "ip.checksum.status",
    "tcp.checksum.status",
    "iwarp_mpa.req",
    "iwarp_mpa.rep",
    "iwarp_mpa.ulpdulength",
    "iwarp_ddp.last_flag",
    "iwarp_ddp.stag",
    "iwarp_ddp.tagged_offset",
    "iwarp_ddp.qn",
    "iwarp_ddp.msn",
    "iwarp_ddp.mo",
    "iwarp_rdma.opcode",
    "iwarp_rdma.inval_stag",
    "iwarp_rdma.sinkstag",
    "iwarp_rdma.sinkto",
    "iwarp_rdma.rdmardsz",
    "iwarp_rdma.srcstag",
    "iwarp_rdma.srcto",
    "iwarp_rdma.term_layer",
    "iwarp_rdma.term_etype_rdma",
    "iwarp_rdma.term_etype_ddp",
    "iwarp_rdma.term_etype_llp",
    "iwarp_rdma.term_errcode_rdma",
    "iwarp_rdma.term_errcode_ddp_tagged",
    "iwarp_rdma.term_errcode_ddp_untagged",
    "iwarp_rdma.term_errcode",
    "iwarp_rdma.term_errcode_llp",
    "iwarp_rdma.term_hdrct_m",
    "iwarp_rdma.hdrct_d",
    "iwarp_rdma.hdrct_r",
    "iwarp_rdma.term_ddp_seg_len",
    "iwarp_rdma.term_ddp_h",
    "iwarp_rdma.term_rdma_h",
    "iwarp_rdma.atomic.opcode",
    "iwarp_rdma.atomic.request_identifier",
    "iwarp_rdma.atomic.remote_stag",
    "iwarp_rdma.atomic.remote_tagged_offset",
];

/// One frame. A field that occurs several times has several values.
#[derive(Debug)]
pub struct Dissected(BTreeMap<&'static str, Vec<String>>);

impl Dissected {
    /// All values of a field.
    pub fn all(&self, field: &str) -> &[String] {
        assert!(FIELDS.contains(&field), "{field} is not asked for");
        self.0.get(field).map_or(&[], Vec::as_slice)
    }

    /// The only value of a field.
    pub fn one(&self, field: &str) -> Option<&str> {
        match self.all(field) {
            [value] => Some(value),
            _ => None,
        }
    }

    /// All values of a field, as numbers; `None` for one that is none.
    pub fn numbers(&self, field: &str) -> Vec<Option<u64>> {
        self.all(field).iter().map(|text| number(text)).collect()
    }
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// A capture, dissected.
pub struct Capture {
    /// Its frames.
    pub frames: Vec<Dissected>,
    text: String,
}

impl Capture {
    /// How often tshark says this. Of CRCs and unknown opcodes it speaks in words only.
    pub fn says(&self, words: &str) -> usize {
        self.text.matches(words).count()
    }
}

/// What tshark says of these frames.
pub fn dissect(frames: &[Vec<u8>]) -> Capture {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("capture.pcapng");
    write(frames, &file);
    let mut arguments = vec![
        "-T",
        "fields",
        "-E",
        "separator=/t",
        "-E",
        "aggregator=;",
        "-E",
        "occurrence=a",
    ];
    arguments.extend(FIELDS.iter().flat_map(|field| ["-e", field]));
    let dissected: Vec<Dissected> = tshark(&file, &arguments).lines().map(parse).collect();
    assert_eq!(dissected.len(), frames.len(), "tshark sees every frame");
    Capture {
        frames: dissected,
        text: tshark(&file, &["-O", "iwarp_mpa,iwarp_ddp_rdmap"]),
    }
}

/// Has the tap capture them.
fn write(frames: &[Vec<u8>], file: &Path) {
    let (io, wire) = MemoryIo::new(1).expect("memory");
    let capture = xwarp_driver::Capture::begin(file, "sim0").expect("a file");
    let mut tap = Tap::new(Box::new(io), &capture);
    for frame in frames {
        wire.deliver(frame.clone());
        let mut received = Vec::new();
        tap.receive(1, &mut received);
        for frame in received {
            tap.recycle(frame);
        }
    }
}

fn tshark(file: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file).args(OPTIONS).args(arguments);
    let output = command.output().expect("tshark is installed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "tshark: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

fn parse(line: &str) -> Dissected {
    let values = line.split('\t').map(|cell| {
        let values = cell.split(';').filter(|value| !value.is_empty());
        values.map(str::to_owned).collect()
    });
    Dissected(FIELDS.into_iter().zip(values).collect())
}
