//! A table that clients look up by RDMA Read alone: the server's application does nothing for it,
//! its RNIC answers.
//!
//! ```sh
//! key_value --dev eth1 --put color=green --put size=7     # host B
//! key_value --dev eth1 --server 10.77.0.2 color uptime    # host A; the server renews `uptime` all the time
//! ```

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::Parser;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use xwarp::cm::ConnectionRequest;
use xwarp::event::AsyncEventKind;
use xwarp::{
    Access, CompletionQueue, CompletionStatus, MemoryRegion, ProtectionDomain, QpConfig, QpState,
    QueuePair, RemoteAddress, Rnic, RnicConfig, SendRequest, WrId,
};

/// How long a Read or a connection may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The server renews `uptime` at least so often, in milliseconds.
const PERIOD: u8 = 1;
/// Slots of the table. Both sides must know the layout, so that it is no option.
const SLOTS: u64 = 1024;
/// Bytes of a slot, and of the checksum that it begins with.
const SLOT: usize = 512;
const SLOT_LEN: u32 = 512;
const CHECKSUM: usize = 8;
/// Reads after which a slot that is always torn is no table's.
const TRIES: u32 = 1000;

/// Serves a table of keys and values, or looks keys up in one.
#[derive(Parser)]
struct Args {
    /// The network interface
    #[arg(long)]
    dev: String,
    /// TCP port of the server
    #[arg(long, default_value_t = 7472)]
    port: u16,
    /// As server: an entry of the table
    #[arg(long, value_name = "KEY=VALUE", conflicts_with = "server")]
    put: Vec<String>,
    /// As client: the server's address
    #[arg(long, requires = "keys")]
    server: Option<IpAddr>,
    /// As client: how often each key is looked up
    #[arg(long, default_value_t = 1)]
    times: u32,
    /// As client: what to look up
    #[arg(requires = "server")]
    keys: Vec<String>,
}

/// FNV-1a, which is the same on every host and in every build. It finds a key's slot and guards
/// what is in a slot.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// The slots in which a key may be: the first that its hash says, and, if another key is there, the
/// next ones.
fn slots_of(key: &str) -> impl Iterator<Item = u64> {
    let first = hash(key.as_bytes()) % SLOTS;
    (0..SLOTS).map(move |step| (first + step) % SLOTS)
}

/// An entry as it is in a slot: `key=value` behind its checksum, then zeros.
fn encode(key: &str, value: &str) -> anyhow::Result<[u8; SLOT]> {
    let (entry, mut slot) = (format!("{key}={value}"), [0; SLOT]);
    let text = slot.get_mut(CHECKSUM..CHECKSUM + entry.len());
    let text = text.with_context(|| format!("the entry of {key:?} exceeds {SLOT} bytes"))?;
    text.copy_from_slice(entry.as_bytes());
    let checksum = hash(&slot[CHECKSUM..]);
    slot[..CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
    Ok(slot)
}

/// What a slot held when it was read.
enum Found {
    Nothing,
    Entry {
        key: String,
        value: String,
    },
    /// Neither the old entry nor the new one, but something of both.
    Torn,
}

fn decode(slot: &[u8; SLOT]) -> Found {
    let (checksum, text) = slot.split_at(CHECKSUM);
    if *slot == [0; SLOT] {
        return Found::Nothing;
    }
    let text = String::from_utf8_lossy(text);
    match text.trim_end_matches('\0').split_once('=') {
        Some((key, value)) if *checksum == hash(&slot[CHECKSUM..]).to_be_bytes() => Found::Entry {
            key: key.to_owned(),
            value: value.to_owned(),
        },
        _ => Found::Torn,
    }
}

/// The server's table: a region that every client may read, and only the server writes.
struct Table(MemoryRegion);

impl Table {
    fn put(&self, key: &str, value: &str) -> anyhow::Result<()> {
        let entry = encode(key, value)?;
        for slot in slots_of(key) {
            let (at, mut held) = (usize::try_from(slot)? * SLOT, [0; SLOT]);
            self.0.bytes().read(at, &mut held)?;
            match decode(&held) {
                Found::Entry { key: other, .. } if other != key => {}
                // A Read may come in the middle of this. Its client sees that the checksum is
                // wrong.
                _ => return Ok(self.0.bytes().write(at, &entry)?),
            }
        }
        bail!("the table is full")
    }
}

/// Accepts a client. The Reply's private data is `place`, the address of the table. If no queue
/// pair is left, the request is dropped, which rejects it.
fn admit(
    pd: &ProtectionDomain,
    cq: &CompletionQueue,
    request: ConnectionRequest,
    place: &[u8],
) -> anyhow::Result<QueuePair> {
    let mut qp = pd.create_qp(&QpConfig::default(), cq, cq)?;
    request.accept(&mut qp, place)?;
    Ok(qp)
}

fn serve(rnic: &Rnic, args: &Args) -> anyhow::Result<()> {
    let pd = rnic.allocate_pd()?;
    let access = Access::LOCAL_READ | Access::REMOTE_READ;
    let table = Table(pd.allocate(SLOT * usize::try_from(SLOTS)?, access)?);
    for entry in &args.put {
        let parts = entry.split_once('=');
        let (key, value) = parts.with_context(|| format!("{entry:?} is not KEY=VALUE"))?;
        table.put(key, value)?;
    }
    // The private data of each Reply: the STag and the Tagged Offset of the table.
    let place = table.0.remote(0).to_bytes();
    // No work of this side completes, so that the smallest queue will do.
    let cq = rnic.create_cq(1)?;
    let (began, mut clients) = (Instant::now(), Vec::<QueuePair>::new());
    let mut listener = rnic.listen((Ipv4Addr::UNSPECIFIED, args.port).into())?;
    let (keys, at) = (args.put.len(), listener.addresses()[0]);
    println!("serving {keys} keys at {at}");
    let events = rnic.events();
    loop {
        table.put("uptime", &format!("{} us", began.elapsed().as_micros()))?;
        sleep(&[listener.as_fd(), events.as_fd()])?;
        while let Some(request) = listener.try_accept()? {
            let remote = request.remote();
            match admit(&pd, &cq, request, &place) {
                Ok(client) => clients.push(client),
                Err(error) => eprintln!("key_value: {remote} is no client: {error:#}"),
            }
        }
        while let Some(event) = events.try_next()? {
            if let AsyncEventKind::Failed { reason } = event.kind {
                bail!("the RNIC has failed: {reason}");
            }
            clients.retain(|client| client.state() == QpState::Rts);
        }
    }
}

/// Sleeps until one of these descriptors is readable, or `uptime` is to be renewed.
fn sleep(sources: &[BorrowedFd<'_>]) -> anyhow::Result<()> {
    let watch = |fd| PollFd::new(fd, PollFlags::POLLIN);
    let mut watched: Vec<PollFd<'_>> = sources.iter().copied().map(watch).collect();
    match poll(&mut watched, PERIOD) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(errno).context("no sleep is possible"),
    }
}

/// What has ended a queue pair's connection, as far as it has ended.
fn why(qp: &QueuePair) -> String {
    let ended = qp.why_ended();
    ended.map_or_else(String::new, |why| format!(", as {why}"))
}

/// A client's view of the table.
struct Remote {
    qp: QueuePair,
    cq: CompletionQueue,
    sink: MemoryRegion,
    table: RemoteAddress,
    torn: u64,
}

impl Remote {
    fn connect(rnic: &Rnic, server: IpAddr, port: u16) -> anyhow::Result<Self> {
        let (pd, cq) = (rnic.allocate_pd()?, rnic.create_cq(8)?);
        let mut qp = pd.create_qp(&QpConfig::default(), &cq, &cq)?;
        // In iWARP the answer to a Read is written by the peer. Registered for this queue pair
        // alone, no other's peer can do so.
        let sink = qp.allocate(SLOT, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        let answer = qp.connect((server, port).into(), b"", TIMEOUT)?;
        let table = RemoteAddress::from_bytes(&answer)
            .context("what listens there is no key_value server")?;
        Ok(Self {
            qp,
            cq,
            sink,
            table,
            torn: 0,
        })
    }

    /// A slot, as it was at the time.
    fn read(&mut self, slot: u64) -> anyhow::Result<[u8; SLOT]> {
        let mut from = self.table;
        from.to = from.to.wrapping_add(slot * u64::from(SLOT_LEN));
        let request = SendRequest::read(WrId(slot), self.sink.local(0, SLOT_LEN), from);
        self.qp.post_send(request)?;
        let read = self.cq.wait(TIMEOUT)?;
        let status = read.context("the server does not answer")?.status;
        ensure!(
            status == CompletionStatus::Success,
            "reading slot {slot} failed: {status}{}",
            why(&self.qp)
        );
        let mut copy = [0; SLOT];
        self.sink.bytes().read(0, &mut copy)?;
        Ok(copy)
    }

    /// Reads a slot until no write has overlapped the read.
    fn read_whole(&mut self, slot: u64) -> anyhow::Result<Found> {
        for _ in 0..TRIES {
            match decode(&self.read(slot)?) {
                Found::Torn => self.torn += 1,
                whole => return Ok(whole),
            }
        }
        bail!("slot {slot} has no valid checksum")
    }

    fn look_up(&mut self, wanted: &str) -> anyhow::Result<String> {
        for slot in slots_of(wanted) {
            match self.read_whole(slot)? {
                Found::Entry { key, value } if key == wanted => return Ok(value),
                Found::Entry { .. } => {}
                Found::Nothing | Found::Torn => break,
            }
        }
        bail!("the server has no key {wanted:?}")
    }
}

fn run(args: &Args) -> anyhow::Result<()> {
    // With an engine of its own thread, Reads are answered whatever the application does.
    let rnic = Rnic::open(&args.dev, &RnicConfig::default())?;
    let Some(server) = args.server else {
        return serve(&rnic, args);
    };
    let mut remote = Remote::connect(&rnic, server, args.port)?;
    for key in &args.keys {
        for _ in 0..args.times {
            println!("{key} = {}", remote.look_up(key)?);
        }
    }
    println!("{} Reads were torn and done again", remote.torn);
    remote.qp.disconnect(TIMEOUT)?;
    Ok(())
}

fn main() -> ExitCode {
    let Err(error) = run(&Args::parse()) else {
        return ExitCode::SUCCESS;
    };
    eprintln!("key_value: {error:#}");
    ExitCode::FAILURE
}
