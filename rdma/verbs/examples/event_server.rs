//! Event loop of a server with several clients: one thread, which turns the engine, too, and sleeps
//! until something happens.
//!
//! ```sh
//! event_server --dev eth1                             # host B
//! event_server --dev eth1 --server 10.77.0.2 a b c    # hosts A: each word comes back in capitals
//! ```

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Parser;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use xwarp::attr::QpId;
use xwarp::cm::ConnectionRequest;
use xwarp::completion::{Arm, CompletionChannel};
use xwarp::config::{Progress, WaitMode};
use xwarp::event::{AsyncEvent, AsyncEventKind, StateChanges};
use xwarp::{
    Access, CompletionQueue, CompletionStatus, MemoryRegion, Opcode, ProtectionDomain, QpConfig,
    QpState, QueuePair, RecvRequest, Rnic, RnicConfig, SendRequest, WorkCompletion, WrId,
};

/// How long an answer or a connection may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Messages that a client may send before it has read an answer, and bytes of each.
const DEPTH: u32 = 16;
const LEN: u32 = 64;

/// Sends the words of its clients back in capitals.
#[derive(Parser)]
struct Args {
    /// The network interface
    #[arg(long)]
    dev: String,
    /// TCP port of the server
    #[arg(long, default_value_t = 7473)]
    port: u16,
    /// As server: clients after which it ends; by default it does not
    #[arg(long)]
    clients: Option<usize>,
    /// As server: clients at once; by default as many as there are queue pairs
    #[arg(long, conflicts_with = "server")]
    at_once: Option<usize>,
    /// As client: the server's address
    #[arg(long, requires = "words", conflicts_with = "clients")]
    server: Option<IpAddr>,
    /// As client: what to send
    #[arg(requires = "server")]
    words: Vec<String>,
}

/// One end of a connection, with a buffer for each message that can be outstanding: the `WrId` of a
/// Receive is the number of its buffer.
struct End {
    qp: QueuePair,
    memory: MemoryRegion,
    remote: SocketAddr,
    messages: u32,
    /// Why the connection ended: the status of a completion, or else an event.
    why: Option<String>,
    /// Reports that a connection which is ending has ended: no event reports that its Terminate has
    /// been sent.
    ending: Option<StateChanges>,
}

impl End {
    /// Posts all buffers: a message that finds none ends its connection.
    fn new(
        pd: &ProtectionDomain,
        cq: &CompletionQueue,
        remote: SocketAddr,
    ) -> anyhow::Result<Self> {
        let qp = pd.create_qp(&QpConfig::default(), cq, cq)?;
        let access = Access::LOCAL_READ | Access::LOCAL_WRITE;
        let memory = pd.allocate(usize::try_from(2 * DEPTH * LEN)?, access)?;
        let mut end = Self {
            qp,
            memory,
            remote,
            messages: 0,
            why: None,
            ending: None,
        };
        (0..DEPTH.into()).try_for_each(|buffer| end.expect_into(buffer))?;
        Ok(end)
    }

    fn expect_into(&mut self, buffer: u64) -> anyhow::Result<()> {
        let sge = self.memory.local(buffer * u64::from(LEN), LEN);
        Ok(self.qp.post_recv(RecvRequest::new(WrId(buffer), sge))?)
    }

    /// The text that was received; its buffer can be posted again.
    fn received(&self, completion: &WorkCompletion) -> anyhow::Result<String> {
        let mut text = vec![0; usize::try_from(completion.byte_len)?];
        let at = usize::try_from(completion.wr_id.0)? * usize::try_from(LEN)?;
        self.memory.bytes().read(at, &mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// A message out of the second half of the memory. With `solicited` it wakes the peer.
    fn send(&mut self, text: &str, solicited: bool) -> anyhow::Result<()> {
        let offset = u64::from(DEPTH + self.messages % DEPTH) * u64::from(LEN);
        self.memory
            .bytes()
            .write(usize::try_from(offset)?, text.as_bytes())?;
        let message = self.memory.local(offset, u32::try_from(text.len())?);
        let request = SendRequest::send(WrId(0), message).unsignaled();
        self.messages += 1;
        Ok(self.qp.post_send(if solicited {
            request.solicited()
        } else {
            request
        })?)
    }
}

struct Server {
    pd: ProtectionDomain,
    channel: CompletionChannel,
    cq: CompletionQueue,
    clients: HashMap<QpId, End>,
    at_once: usize,
}

impl Server {
    /// A client for whom there is nothing left is rejected. That is no reason to leave those who
    /// are here.
    fn admit(&mut self, request: ConnectionRequest) {
        let remote = request.remote();
        match self.try_admit(request) {
            Ok(end) => {
                println!("{remote} is here");
                self.clients.insert(end.qp.id(), end);
            }
            Err(error) => println!("{remote} could not be accepted: {error:#}"),
        }
    }

    /// A request that is dropped is rejected.
    fn try_admit(&self, request: ConnectionRequest) -> anyhow::Result<End> {
        let most = self.at_once;
        ensure!(self.clients.len() < most, "{most} clients are here already");
        let mut end = End::new(&self.pd, &self.cq, request.remote())?;
        request.accept(&mut end.qp, b"")?;
        Ok(end)
    }

    /// Arms first and polls then: what completes in between is seen by the one or the other.
    fn serve_completions(&mut self) -> anyhow::Result<()> {
        self.cq.arm(Arm::Solicited)?;
        while let Some(completion) = self.cq.poll()? {
            let Some(client) = self.clients.get_mut(&completion.qp) else {
                continue; // it has gone, and this was still in the queue
            };
            match completion.status {
                CompletionStatus::Success => {
                    if let Err(error) = answer(client, &completion) {
                        client.why = Some(format!("{error:#}"));
                        client.qp.abort()?; // such as one that asks and asks, and takes no answers
                    }
                }
                // Why, another completion or an asynchronous event says.
                CompletionStatus::Flushed => {}
                status => client.why = Some(format!("{:?}: {status}", completion.opcode)),
            }
        }
        Ok(())
    }

    /// Notes what has ended a connection, unless a completion has said so.
    fn serve_event(&mut self, event: AsyncEvent) -> anyhow::Result<()> {
        let client = event.qp().and_then(|qp| self.clients.get_mut(&qp));
        let why = match event.kind {
            AsyncEventKind::Failed { reason } => bail!("the RNIC has failed: {reason}"),
            AsyncEventKind::Closed => "closed".to_owned(),
            other => format!("{other:?}"),
        };
        if let Some(client) = client {
            client.why = Some(why);
        }
        Ok(())
    }

    /// Sleeps until one of these descriptors is readable, or one that reports the end of a
    /// connection.
    fn sleep(&self, sources: &[BorrowedFd<'_>]) -> anyhow::Result<()> {
        let ending = self.clients.values().filter_map(|it| it.ending.as_ref());
        let all = (sources.iter().copied()).chain(ending.map(StateChanges::as_fd));
        let mut watched: Vec<PollFd<'_>> =
            all.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        match poll(&mut watched, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno).context("no sleep is possible"),
        }
    }

    /// Drops the clients whose connections have ended. Returns their number.
    fn let_go(&mut self) -> usize {
        let before = self.clients.len();
        for client in self.clients.values_mut() {
            if client.why.is_some() && client.ending.is_none() {
                // If no descriptor is left, the server looks at this client when something else
                // wakes it.
                client.ending = client.qp.state_changes().ok();
            }
        }
        // A queue pair in state Terminate still reports to its peer what was wrong. If it were
        // dropped, it would not.
        self.clients.retain(|_, client| {
            let changes = client.ending.as_ref();
            let state = changes.map_or_else(|| client.qp.state(), StateChanges::take);
            let has_ended = matches!(state, QpState::Idle | QpState::Error);
            let why = client.why.as_ref().filter(|_| has_ended);
            if let Some(why) = why {
                println!("{}: {} messages, {why}", client.remote, client.messages);
            }
            why.is_none()
        });
        before - self.clients.len()
    }
}

fn answer(client: &mut End, completion: &WorkCompletion) -> anyhow::Result<()> {
    let text = client.received(completion)?.to_ascii_uppercase();
    client.expect_into(completion.wr_id.0)?;
    client.send(&text, completion.solicited)
}

fn serve(rnic: &Rnic, args: &Args) -> anyhow::Result<()> {
    let channel = rnic.create_completion_channel()?;
    let cq = rnic.create_cq_on(&channel, 4096)?;
    let events = rnic.events();
    let mut listener = rnic.listen((Ipv4Addr::UNSPECIFIED, args.port).into())?;
    println!("waiting for clients at {}", listener.addresses()[0]);
    let (pd, clients) = (rnic.allocate_pd()?, HashMap::new());
    let at_once = args.at_once.unwrap_or(usize::MAX);
    let mut server = Server {
        pd,
        channel,
        cq,
        clients,
        at_once,
    };
    let (mut gone, mut woken) = (0, 0);
    server.serve_completions()?;
    while args.clients.is_none_or(|clients| gone < clients) {
        let channel = server.channel.as_fd();
        server.sleep(&[rnic.as_fd(), listener.as_fd(), channel, events.as_fd()])?;
        // The engine does what there is to do, which makes the other descriptors readable.
        rnic.progress()?;
        while let Some(request) = listener.try_accept()? {
            server.admit(request);
        }
        while server.channel.try_next()?.is_some() {
            woken += 1;
            server.serve_completions()?;
        }
        while let Some(event) = events.try_next()? {
            server.serve_event(event)?;
        }
        gone += server.let_go();
    }
    println!("{gone} clients served, woken {woken} times");
    Ok(())
}

/// Sends all words, and asks the server to wake up with the last of them only.
fn ask(rnic: &Rnic, server: IpAddr, args: &Args) -> anyhow::Result<()> {
    let (words, most) = (&args.words, usize::try_from(DEPTH)?);
    ensure!(
        words.len() <= most,
        "{} words are too many: at most {most}",
        words.len()
    );
    let long = words.iter().find(|word| word.len() > LEN as usize);
    ensure!(long.is_none(), "a word has at most {LEN} bytes");
    let mut cq = rnic.create_cq(64)?;
    let server = SocketAddr::new(server, args.port);
    let mut end = End::new(&rnic.allocate_pd()?, &cq, server)?;
    end.qp.connect(server, b"", TIMEOUT)?;
    for (number, word) in words.iter().enumerate() {
        end.send(word, number + 1 == words.len())?;
    }
    for word in words {
        let answer = cq.wait(TIMEOUT)?.context("the server does not answer")?;
        let (opcode, status) = (answer.opcode, answer.status);
        ensure!(
            answer.is_success() && opcode == Opcode::Receive,
            "{opcode:?}: {status}"
        );
        println!("{word} -> {}", end.received(&answer)?);
    }
    end.qp.disconnect(TIMEOUT)?;
    Ok(())
}

fn run(args: &Args) -> anyhow::Result<()> {
    // The thread that waits turns the engine, and sleeps when there is nothing to do.
    let config = RnicConfig::default()
        .progress(Progress::Inline)
        .wait_mode(WaitMode::Blocking);
    let rnic = Rnic::open(&args.dev, &config)?;
    match args.server {
        None => serve(&rnic, args),
        Some(server) => ask(&rnic, server, args),
    }
}

fn main() -> ExitCode {
    let Err(error) = run(&Args::parse()) else {
        return ExitCode::SUCCESS;
    };
    eprintln!("event_server: {error:#}");
    ExitCode::FAILURE
}
