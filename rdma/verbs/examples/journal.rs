//! Lines of text to another host. At each end one thread sends, another takes completions, many at
//! a time, and no lock is between them.
//!
//! ```sh
//! journal --dev eth1                              # host B, which prints what comes
//! journal --dev eth1 --server 10.77.0.2 a b c     # host A
//! ```

use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Parser;
use xwarp::completion::Arm;
use xwarp::error::PostError;
use xwarp::memory::SharedBytes;
use xwarp::work::{DataPath, Payload, ReceiveQueue, SendQueue, Sgl};
use xwarp::{
    Access, CompletionQueue, CompletionStatus, MemoryRegion, ProtectionDomain, QpConfig, QueuePair,
    RecvRequest, Rnic, RnicConfig, SendRequest, WorkCompletion, WrId,
};

/// How long a connection or a completion may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long the server waits for its client, and for a line.
const LONG: Duration = Duration::from_hours(1);
/// Buffers at either end. A line must find one at the server, or the connection ends.
const DEPTH: u32 = 64;
/// Lines after which the server sends a credit, an empty message: as many lines may follow.
const CREDIT: u32 = DEPTH / 2;
/// Bytes of a buffer.
const LEN: u32 = 1024;
/// What every line begins with. It stays where the program has it, and is registered there.
static MARK: [u8; 2] = *b"> ";
/// Bytes of a message that travels in its work request. A longer one is gathered out of registered
/// memory.
const SHORT: usize = 64;
/// Completions that are taken at once.
const BATCH: usize = 16;

/// Sends lines of text to a host that prints them.
#[derive(Parser)]
struct Args {
    /// The network interface
    #[arg(long)]
    dev: String,
    /// TCP port of the server
    #[arg(long, default_value_t = 7475)]
    port: u16,
    /// As client: the server's address
    #[arg(long, requires = "lines")]
    server: Option<IpAddr>,
    /// As client: how often all lines are sent
    #[arg(long, default_value_t = 1)]
    times: usize,
    /// As client: what to send
    #[arg(requires = "server")]
    lines: Vec<String>,
}

/// What both ends have.
struct End {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    qp: QueuePair,
    buffers: MemoryRegion,
}

impl End {
    fn new(rnic: &Rnic) -> anyhow::Result<Self> {
        let (pd, depth) = (rnic.allocate_pd()?, usize::try_from(DEPTH)?);
        let cq = rnic.create_cq(2 * depth)?;
        let config = QpConfig::default().send_depth(depth).recv_depth(depth);
        let qp = pd.create_qp(&config, &cq, &cq)?;
        let access = Access::LOCAL_READ | Access::LOCAL_WRITE;
        let buffers = pd.allocate(usize::try_from(DEPTH * LEN)?, access)?;
        Ok(Self {
            pd,
            cq,
            qp,
            buffers,
        })
    }
}

/// Takes completions, as many at a time as there are, until `is_over`: one of them says so.
fn take_all(
    cq: &mut CompletionQueue,
    timeout: Duration,
    mut is_over: bool,
    mut is_last: impl FnMut(&WorkCompletion) -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let mut batch = [WorkCompletion::empty(); BATCH];
    while !is_over {
        // Arms first and polls then: what completes in between is seen by the one or the other.
        cq.arm(Arm::Next)?;
        let taken = cq.poll_into(&mut batch)?;
        for completion in &batch[..taken] {
            is_over |= is_last(completion)?;
        }
        let came = is_over || taken > 0 || cq.wait_event(timeout)?;
        ensure!(came, "nothing has completed for {timeout:?}");
    }
    Ok(())
}

/// Posts each line as soon as there is a buffer for it at both ends: they come round.
fn post_lines(
    lines: impl Iterator<Item = String>,
    [mark, buffers]: [&MemoryRegion; 2],
    credits: &Receiver<u32>,
    mut sends: SendQueue,
) -> anyhow::Result<()> {
    let mut room = DEPTH;
    for (line, buffer) in lines.zip((0..DEPTH).cycle()) {
        if room == 0 {
            room = credits.recv().context("the server takes no more lines")?;
        }
        room -= 1;
        let payload = if MARK.len() + line.len() <= SHORT {
            Payload::inline(&[&MARK[..], line.as_bytes()].concat())
        } else {
            let bytes = buffers.bytes();
            bytes.write(usize::try_from(buffer * LEN)?, line.as_bytes())?;
            let text = buffers.local((buffer * LEN).into(), u32::try_from(line.len())?);
            Payload::from(&[mark.local(0, u32::try_from(MARK.len())?), text][..])
        };
        sends.post(SendRequest::send(WrId(0), payload).unsignaled())?;
    }
    Ok(())
}

/// Takes a credit for as many lines as that, and expects the next one.
fn take_credits(
    cq: &mut CompletionQueue,
    lines: usize,
    mut receives: ReceiveQueue,
    give: &Sender<u32>,
) -> anyhow::Result<()> {
    let mut expected = lines / CREDIT as usize;
    take_all(cq, TIMEOUT, expected == 0, |completion| {
        let (opcode, status) = (completion.opcode, completion.status);
        ensure!(completion.is_success(), "a {opcode:?} failed: {status}");
        receives.post(RecvRequest::new(WrId(0), Sgl::new()))?;
        // The receiving end of `give` is gone once all lines are posted.
        let _ = give.send(CREDIT);
        expected -= 1;
        Ok(expected == 0)
    })
}

fn send(rnic: &Rnic, server: IpAddr, args: &Args) -> anyhow::Result<()> {
    let long = (args.lines.iter()).find(|line| MARK.len() + line.len() > LEN as usize);
    ensure!(
        long.is_none(),
        "a line has at most {LEN} bytes with its mark"
    );
    let mut end = End::new(rnic)?;
    let mark = (end.pd).register(SharedBytes::from_static(&MARK), Access::LOCAL_READ)?;
    let (sends, receives) = end.qp.take_data_path()?.split();
    let mut receives = receives.context("no receive queue")?;
    for _ in 0..DEPTH / CREDIT {
        receives.post(RecvRequest::new(WrId(0), Sgl::new()))?;
    }
    end.qp.connect((server, args.port).into(), b"", TIMEOUT)?;
    let count = args.lines.len() * args.times;
    let lines = args.lines.iter().cycle().take(count).cloned();
    let (memory, cq) = ([&mark, &end.buffers], &mut end.cq);
    let (give, credits) = channel();
    thread::scope(|scope| {
        let poster = scope.spawn(move || post_lines(lines, memory, &credits, sends));
        take_credits(cq, count, receives, &give)?;
        drop(give);
        poster.join().expect("no panic")
    })?;
    end.qp.disconnect(TIMEOUT)?;
    println!("{count} lines sent");
    Ok(())
}

/// Prints what is in buffers, and posts each of them again; how many they were.
fn print_lines(
    buffers: &MemoryRegion,
    filled: &Receiver<(WrId, u32)>,
    mut path: DataPath,
) -> anyhow::Result<u32> {
    let mut count = 0;
    for (buffer, len) in filled {
        let (at, mut line) = (buffer.0 * u64::from(LEN), vec![0; usize::try_from(len)?]);
        buffers.bytes().read(usize::try_from(at)?, &mut line)?;
        println!("{}", String::from_utf8_lossy(&line));
        count += 1;
        match path.post_recv(RecvRequest::new(buffer, buffers.local(at, LEN))) {
            Ok(()) if count % CREDIT == 0 => {
                path.post_send(SendRequest::send(WrId(0), Sgl::new()).unsignaled())?;
            }
            // The client has closed: no more lines come.
            Ok(()) | Err(PostError::InvalidState(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(count)
}

fn serve(rnic: &Rnic, args: &Args) -> anyhow::Result<()> {
    let mut listener = rnic.listen((Ipv4Addr::UNSPECIFIED, args.port).into())?;
    println!("waiting for a client at {}", listener.addresses()[0]);
    let request = listener.accept(LONG)?.context("no client has come")?;
    let mut end = End::new(rnic)?;
    // Before accepting, as the first message may come at once: one without a buffer ends the
    // connection.
    for buffer in 0..u64::from(DEPTH) {
        let place = end.buffers.local(buffer * u64::from(LEN), LEN);
        end.qp.post_recv(RecvRequest::new(WrId(buffer), place))?;
    }
    request.accept(&mut end.qp, b"")?;
    let (buffers, path) = (&end.buffers, end.qp.take_data_path()?);
    let (fill, filled) = channel();
    let count = thread::scope(|scope| {
        let printer = scope.spawn(move || print_lines(buffers, &filled, path));
        take_all(&mut end.cq, LONG, false, move |completion| {
            match completion.status {
                CompletionStatus::Success => {}
                CompletionStatus::Flushed => return Ok(true),
                status => bail!("a {:?} failed: {status}", completion.opcode),
            }
            fill.send((completion.wr_id, completion.byte_len))?;
            Ok(false)
        })?;
        printer.join().expect("no panic")
    })?;
    println!("{count} lines received");
    Ok(())
}

fn run(args: &Args) -> anyhow::Result<()> {
    // An engine with a thread of its own: neither of this program's two threads has to turn it.
    let rnic = Rnic::open(&args.dev, &RnicConfig::default())?;
    match args.server {
        None => serve(&rnic, args),
        Some(server) => send(&rnic, server, args),
    }
}

fn main() -> ExitCode {
    let Err(error) = run(&Args::parse()) else {
        return ExitCode::SUCCESS;
    };
    eprintln!("journal: {error:#}");
    ExitCode::FAILURE
}
