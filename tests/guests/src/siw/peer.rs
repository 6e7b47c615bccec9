//! The verbs program in a guest that does what a test says; guest/peer/peer.h and the table in
//! main.c say what it understands.

use std::fmt;

use xwarp_system_tests::TIMEOUT;

use crate::siw::guest::Guest;
use crate::siw::job::Job;

/// A peer. It ends with the value.
pub struct Peer<'a>(Job<'a>);

impl<'a> Peer<'a> {
    /// Starts one in a guest.
    pub fn start(guest: &'a Guest<'a>) -> Self {
        let job = guest.start(&format!("exec {}", guest.peer_file().display()));
        let mut peer = Self(job);
        let opened = peer.answer();
        assert!(opened.is_ok(), "{opened:?}: {}", peer.0);
        peer
    }

    /// Has it do something that must succeed.
    pub fn ask(&mut self, command: &str) -> Answer {
        let answer = self.try_ask(command);
        answer.unwrap_or_else(|error| panic!("{command}: {error}\n{}", self.0))
    }

    /// Has it do something; the error is what it says went wrong.
    pub fn try_ask(&mut self, command: &str) -> Result<Answer, String> {
        self.begin(command);
        self.answer()
    }

    /// Has it begin something. [`Peer::answer`] must follow.
    pub fn begin(&mut self, command: &str) {
        self.0.tell(command);
    }

    /// The answer to the last command.
    pub fn answer(&mut self) -> Result<Answer, String> {
        let mut completions = Vec::new();
        loop {
            let Some(line) = self.0.next_line(TIMEOUT) else {
                panic!("the peer has ended: {}", self.0);
            };
            let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
            match word {
                // What the provider's library prints of its own accord.
                "libsiw:" => {}
                "completion" => completions.push(Completion::parse(&Fields::parse(rest))),
                "ok" => {
                    return Ok(Answer {
                        fields: Fields::parse(rest),
                        completions,
                    });
                }
                "error" => return Err(format!("{rest}, after {completions:?}")),
                _ => panic!("the peer says {line:?}: {}", self.0),
            }
        }
    }

    /// Waits for this event of the connection manager.
    pub fn expect_event(&mut self, name: &str, event: &str) -> Answer {
        let answer = self.ask(&format!("event name={name}"));
        assert_eq!(answer.text("event"), event, "{answer:?}");
        answer
    }

    /// Waits for as many completions.
    pub fn poll(&mut self, name: &str, count: usize) -> Vec<Completion> {
        self.ask(&format!("poll name={name} count={count} timeout=15000"))
            .completions
    }

    /// Waits for as many completions, and after two seconds without one takes fewer, too.
    pub fn poll_up_to(&mut self, name: &str, count: usize) -> Vec<Completion> {
        self.ask(&format!(
            "poll name={name} count={count} least=0 timeout=2000"
        ))
        .completions
    }
}

/// What a command gave.
#[derive(Debug)]
pub struct Answer {
    fields: Fields,
    /// Of `poll`.
    pub completions: Vec<Completion>,
}

impl Answer {
    /// The value of a key.
    pub fn text(&self, key: &str) -> &str {
        self.fields.text(key)
    }

    /// The value of a key that is a number.
    pub fn number(&self, key: &str) -> u64 {
        self.fields.number(key)
    }
}

/// A work completion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The work request's number.
    pub id: u64,
    /// `success`, or libibverbs' words for what is wrong.
    pub status: String,
    /// `send`, `write`, `read`, `recv`; `-` if it has failed.
    pub opcode: String,
    /// Bytes received.
    pub length: u64,
}

impl Completion {
    fn parse(fields: &Fields) -> Self {
        Self {
            id: fields.number("id"),
            status: fields.text("status").to_owned(),
            opcode: fields.text("opcode").to_owned(),
            length: fields.number("length"),
        }
    }
}

/// `key=value` pairs.
struct Fields(Vec<(String, String)>);

impl Fields {
    fn parse(text: &str) -> Self {
        let pairs = text.split(' ').filter_map(|word| word.split_once('='));
        let owned = pairs.map(|(key, value)| (key.to_owned(), value.to_owned()));
        Self(owned.collect())
    }

    fn text(&self, key: &str) -> &str {
        let found = self.0.iter().find(|(name, _)| name == key);
        let (_, value) = found.unwrap_or_else(|| panic!("there is no {key}= in {self:?}"));
        value
    }

    fn number(&self, key: &str) -> u64 {
        let value = self.text(key);
        value
            .parse()
            .unwrap_or_else(|_| panic!("{key}={value} is no number"))
    }
}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.0.iter().map(|(k, v)| format!("{k}={v}")).collect();
        f.write_str(&words.join(" "))
    }
}

/// What the command `fill` of the peer program writes and `check` expects: `length` bytes for this
/// number.
pub fn filling(length: usize, seed: usize) -> Vec<u8> {
    let byte = |at: usize| {
        (at ^ (at >> 8) ^ (at >> 16))
            .wrapping_mul(167)
            .wrapping_add(seed * 29 + 1)
    };
    (0..length).map(|at| byte(at).to_le_bytes()[0]).collect()
}
