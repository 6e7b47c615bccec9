//! The last frames of a link, which help to understand why a test failed.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use super::direction::Direction;

/// Frames that are remembered.
const DEPTH: usize = 40;
/// Bytes that are remembered of each: Ethernet, IP and TCP headers and the begin of an FPDU.
const HEAD: usize = 96;

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives.
    Carried {
        /// When.
        arrival: Duration,
        /// Later frames may overtake it.
        held_back: bool,
        /// Twice.
        duplicated: bool,
        /// With other bytes than were sent.
        corrupted: bool,
    },
    /// It was lost at random.
    Lost,
    /// The test wanted it dropped.
    Dropped,
    /// The queue was full.
    QueueFull,
}

/// A frame as it is sent, before anything is done to it.
#[derive(Clone, Copy, Debug)]
pub struct Sighting<'a> {
    /// When it was sent.
    pub at: Duration,
    /// Which way.
    pub direction: Direction,
    /// Its bytes.
    pub frame: &'a [u8],
    /// What becomes of it.
    pub fate: Fate,
}

/// The last frames of a link; shows them one per line.
#[derive(Default)]
pub struct Trace(VecDeque<Entry>);

struct Entry {
    at: Duration,
    direction: Direction,
    head: Vec<u8>,
    len: usize,
    fate: Fate,
}

impl Trace {
    pub(crate) fn record(&mut self, sighting: &Sighting<'_>) {
        if self.0.len() == DEPTH {
            self.0.pop_front();
        }
        let len = sighting.frame.len();
        self.0.push_back(Entry {
            at: sighting.at,
            direction: sighting.direction,
            head: sighting.frame[..len.min(HEAD)].to_vec(),
            len,
            fate: sighting.fate,
        });
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|entry| writeln!(f, "{entry}"))
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arrow = match self.direction {
            Direction::AToB => "A -> B",
            Direction::BToA => "A <- B",
        };
        write!(
            f,
            "{:>14.6} s  {arrow}  {:>5} bytes",
            self.at.as_secs_f64(),
            self.len
        )?;
        if let Some(tcp) = TcpSummary::of(&self.head) {
            write!(f, "  {tcp}")?;
        }
        match self.fate {
            Fate::Carried {
                held_back,
                duplicated,
                corrupted,
                ..
            } => {
                let marks = [
                    (held_back, "held back"),
                    (duplicated, "twice"),
                    (corrupted, "damaged"),
                ];
                (marks.iter().filter(|(holds, _)| *holds))
                    .try_for_each(|(_, mark)| write!(f, "  {mark}"))
            }
            fate @ (Fate::Lost | Fate::Dropped | Fate::QueueFull) => write!(f, "  {fate:?}"),
        }
    }
}

/// What a TCP segment over IPv4 says of itself.
struct TcpSummary {
    ports: [u16; 2],
    flags: u8,
    seq: u32,
    ack: u32,
    window: u16,
    payload: usize,
}

impl TcpSummary {
    fn of(frame: &[u8]) -> Option<Self> {
        let ip = frame.strip_prefix(frame.get(..14)?)?;
        if frame[12..14] != [0x08, 0x00] || *ip.get(9)? != 6 {
            return None;
        }
        let ip_header = usize::from(ip.first()? & 0x0f) * 4;
        let total = usize::from(u16_at(ip, 2)?);
        let tcp = ip.get(ip_header..)?;
        let tcp_header = usize::from(tcp.get(12)? >> 4) * 4;
        Some(Self {
            ports: [u16_at(tcp, 0)?, u16_at(tcp, 2)?],
            flags: *tcp.get(13)?,
            seq: u32_at(tcp, 4)?,
            ack: u32_at(tcp, 8)?,
            window: u16_at(tcp, 14)?,
            payload: total.saturating_sub(ip_header + tcp_header),
        })
    }
}

impl fmt::Display for TcpSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (0x02, 'S'),
            (0x01, 'F'),
            (0x04, 'R'),
            (0x08, 'P'),
            (0x10, 'A'),
        ];
        let flags: String = (names.iter().filter(|(bit, _)| self.flags & bit != 0))
            .map(|(_, name)| *name)
            .collect();
        let [from, to] = self.ports;
        let Self {
            seq,
            ack,
            window,
            payload,
            ..
        } = self;
        write!(
            f,
            "{from}>{to} {flags:<3} seq {seq} ack {ack} win {window} len {payload}"
        )
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syn_is_shown_as_one() {
        let mut frame = vec![0; 54];
        frame[12..14].copy_from_slice(&[0x08, 0x00]); // IPv4
        frame[14] = 0x45; // version 4, header of 20 bytes
        frame[17] = 40; // total length
        frame[23] = 6; // TCP
        frame[34..38].copy_from_slice(&[0xc0, 0x00, 0x1d, 0x2f]); // ports 49152 and 7471
        frame[41] = 9; // sequence number
        frame[46] = 0x50; // header of 20 bytes
        frame[47] = 0x02; // SYN
        frame[48..50].copy_from_slice(&[0xff, 0xff]); // window
        let mut trace = Trace::default();
        trace.record(&Sighting {
            at: Duration::from_millis(1500),
            direction: Direction::AToB,
            frame: &frame,
            fate: Fate::Lost,
        });
        let shown = trace.to_string();
        assert!(shown.contains("1.500000 s  A -> B     54 bytes"), "{shown}");
        assert!(
            shown.contains("49152>7471 S   seq 9 ack 0 win 65535 len 0  Lost"),
            "{shown}"
        );
    }

    #[test]
    fn only_the_last_frames_are_remembered() {
        let mut trace = Trace::default();
        for _ in 0..100 {
            trace.record(&Sighting {
                at: Duration::ZERO,
                direction: Direction::BToA,
                frame: &[0; 10],
                fate: Fate::Dropped,
            });
        }
        assert_eq!(trace.to_string().lines().count(), DEPTH);
    }
}
