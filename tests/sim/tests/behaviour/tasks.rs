//! Tasks on tokio that wait for an RNIC, with either kind of engine.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::timeout;
use xwarp::cm::{ConnectionRequest, PrivateData};
use xwarp::completion::{Arm, CompletionChannel};
use xwarp::config::{Progress, WaitMode};
use xwarp::error::{ConnectError, RnicEnded, RnicUnavailable, StreamError};
use xwarp::event::AsyncEventKind;
use xwarp::tokio::Async;
use xwarp::work::Sgl;
use xwarp::{
    CompletionQueue, Listener, ProtectionDomain, QpConfig, QpState, QueuePair, RecvRequest, Rnic,
    RnicConfig, SendRequest, WorkCompletion, WrId,
};
use xwarp_test_kit::{MemoryRnic, MemoryRnics, Side, eventually};

/// A wake-up that is lost fails a test after so long.
const TIMEOUT: Duration = Duration::from_secs(20);
const ALL: [Progress; 3] = [Progress::Thread, Progress::Inline, Progress::Assisted];
const PORT: u16 = 7471;
/// A port where the peer leaves Requests unanswered.
const SILENT_PORT: u16 = 7472;

fn rnic(side: Side, progress: Progress) -> MemoryRnic {
    let config = RnicConfig::default()
        .progress(progress)
        .wait_mode(WaitMode::Blocking);
    MemoryRnic::at(side).frames(256).announced().config(config)
}

/// Two RNICs whose objects tasks wait for.
struct Tasks(MemoryRnics);

impl Tasks {
    fn new(progress: Progress) -> Self {
        Self(MemoryRnics::open(|side| rnic(side, progress)))
    }

    fn listen(&self) -> Async<Listener> {
        self.listen_at(PORT)
    }

    fn listen_at(&self, port: u16) -> Async<Listener> {
        let at = (Side::B.address(), port);
        self.0.b.listen(at.into()).unwrap().into_async().unwrap()
    }

    /// Both ends of a connection.
    async fn connect(&self, listener: &mut Async<Listener>) -> (AsyncEnd, AsyncEnd) {
        let (mut a, mut b) = (AsyncEnd::new(&self.0.a), AsyncEnd::new(&self.0.b));
        b.qp.post_recv(RecvRequest::new(WrId(7), Sgl::new()))
            .unwrap();
        let (connected, ()) =
            in_time(async { tokio::join!(a.connect(), b.accept(listener)) }).await;
        assert_eq!(connected.unwrap(), b"welcome");
        (a, b)
    }
}

/// A queue pair whose completions a task awaits.
struct AsyncEnd {
    qp: QueuePair,
    cq: CompletionQueue,
    channel: Async<CompletionChannel>,
    _pd: ProtectionDomain,
}

impl AsyncEnd {
    fn new(rnic: &Rnic) -> Self {
        let channel = rnic.create_completion_channel().unwrap();
        let cq = rnic.create_cq_on(&channel, 16).unwrap();
        let pd = rnic.allocate_pd().unwrap();
        let qp = pd.create_qp(&QpConfig::default(), &cq, &cq).unwrap();
        Self {
            qp,
            cq,
            channel: channel.into_async().unwrap(),
            _pd: pd,
        }
    }

    async fn connect(&mut self) -> Result<PrivateData, ConnectError> {
        self.connect_to(PORT).await
    }

    async fn connect_to(&mut self, port: u16) -> Result<PrivateData, ConnectError> {
        let at = (Side::B.address(), port);
        self.qp.begin_connect(at.into(), b"", TIMEOUT)?.await
    }

    async fn accept(&mut self, listener: &mut Async<Listener>) {
        let request: ConnectionRequest = listener.accept().await.unwrap();
        request.accept(&mut self.qp, b"welcome").unwrap();
    }

    /// The next completion, by the channel alone.
    async fn completion(&mut self) -> WorkCompletion {
        loop {
            self.cq.arm(Arm::Next).unwrap();
            if let Some(completion) = self.cq.poll().unwrap() {
                return completion;
            }
            assert_eq!(self.channel.next().await.unwrap(), self.cq.id());
        }
    }

    fn send(&mut self) {
        let empty = SendRequest::send(WrId(1), Sgl::new());
        self.qp.post_send(empty).unwrap();
    }

    async fn ended(&self) -> QpState {
        let changes = self.qp.state_changes().unwrap().into_async().unwrap();
        let over = |state| matches!(state, QpState::Idle | QpState::Error);
        changes.wait_for(over).await.unwrap()
    }
}

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    timeout(TIMEOUT, future)
        .await
        .expect("nobody woke the task")
}

/// Polls a future once: what it returns, if it does at once.
async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    poll_fn(|context| {
        Poll::Ready(match future.as_mut().poll(context) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    })
    .await
}

#[tokio::test(flavor = "current_thread")]
async fn tasks_connect_send_and_close() {
    for progress in ALL {
        let tasks = Tasks::new(progress);
        let (mut a, mut b) = tasks.connect(&mut tasks.listen()).await;
        a.send();
        let (sent, received) =
            in_time(async { tokio::join!(a.completion(), b.completion()) }).await;
        assert!(sent.is_success() && received.is_success(), "{progress:?}");
        assert_eq!((sent.wr_id, received.wr_id), (WrId(1), WrId(7)));
        a.qp.begin_disconnect().unwrap();
        let ends = in_time(async { tokio::join!(a.ended(), b.ended()) }).await;
        assert_eq!(ends, (QpState::Idle, QpState::Idle), "{progress:?}");
    }
}

#[tokio::test(flavor = "current_thread")]
async fn events_are_awaited() {
    for progress in ALL {
        let tasks = Tasks::new(progress);
        let (a, mut b) = tasks.connect(&mut tasks.listen()).await;
        let events = tasks.0.a.events().into_async().unwrap();
        {
            // Given up without an event: the next one loses nothing by that.
            let mut given_up = pin!(events.next());
            assert!(poll_once(given_up.as_mut()).await.is_none());
        }
        b.qp.abort().unwrap();
        let (event, state) = in_time(async { tokio::join!(events.next(), b.ended()) }).await;
        let event = event.unwrap();
        assert_eq!(event.qp(), Some(a.qp.id()));
        assert_eq!(event.kind, AsyncEventKind::ConnectionReset);
        assert_eq!(state, QpState::Error);
    }
}

#[tokio::test(flavor = "current_thread")]
async fn futures_that_are_dropped_lose_nothing() {
    for progress in ALL {
        let tasks = Tasks::new(progress);
        let mut listener = tasks.listen();
        {
            let mut given_up = pin!(listener.accept());
            assert!(poll_once(given_up.as_mut()).await.is_none());
        }
        let (mut a, mut b) = tasks.connect(&mut listener).await;
        b.cq.arm(Arm::Next).unwrap();
        {
            let mut given_up = pin!(b.channel.next());
            assert!(poll_once(given_up.as_mut()).await.is_none());
            a.send();
            // The other end completes, so that the message has come.
            assert!(in_time(a.completion()).await.is_success());
        }
        let id = b.cq.id();
        assert_eq!(in_time(b.channel.next()).await, Ok(id), "{progress:?}");
        assert!(b.cq.poll().unwrap().expect("a message").is_success());
    }
}

#[tokio::test(flavor = "current_thread")]
async fn two_tasks_await_the_same_events() {
    for progress in ALL {
        let tasks = Tasks::new(progress);
        let mut listener = tasks.listen();
        let mut ends = [
            tasks.connect(&mut listener).await,
            tasks.connect(&mut listener).await,
        ];
        let own = || tasks.0.a.events().into_async().unwrap();
        let (first, second) = (own(), own());
        for (_, b) in &mut ends {
            b.qp.abort().unwrap();
        }
        let [(_, b), (_, d)] = &ends;
        let both = async { tokio::join!(first.next(), second.next(), b.ended(), d.ended()) };
        let (first, second, ..) = in_time(both).await;
        assert_ne!(first.unwrap().qp(), second.unwrap().qp(), "{progress:?}");
    }
}

#[tokio::test(flavor = "current_thread")]
async fn connection_whose_future_is_dropped_is_given_up() {
    for progress in ALL {
        let tasks = Tasks::new(progress);
        let _silent = tasks.listen_at(SILENT_PORT);
        let mut a = AsyncEnd::new(&tasks.0.a);
        {
            let mut given_up = pin!(a.connect_to(SILENT_PORT));
            assert!(poll_once(given_up.as_mut()).await.is_none());
        }
        assert_eq!(a.qp.state(), QpState::Idle);
        let mut listener = tasks.listen();
        let mut b = AsyncEnd::new(&tasks.0.b);
        let both = async { tokio::join!(a.connect(), b.accept(&mut listener)) };
        assert!(in_time(both).await.0.is_ok(), "{progress:?}");
    }
}

#[tokio::test(flavor = "current_thread")]
async fn streams_are_accepted_read_and_written() {
    for progress in ALL {
        let tasks = Tasks::new(progress);
        let at = (Side::B.address(), PORT);
        let listener = tasks.0.b.listen_streams(at.into()).unwrap();
        let mut listener = listener.into_async().unwrap();
        let connect = async {
            let connecting = tasks.0.a.begin_connect_stream(at.into(), TIMEOUT).unwrap();
            let near = connecting.await.unwrap().into_async().unwrap();
            near.established().await.unwrap();
            near
        };
        let both = async { tokio::join!(connect, listener.accept()) };
        let (mut near, far) = in_time(both).await;
        let mut far = far.unwrap().into_async().unwrap();
        let mut bytes = [0; 8];
        {
            let mut given_up = pin!(far.read(&mut bytes));
            assert!(poll_once(given_up.as_mut()).await.is_none());
        }
        assert_eq!(in_time(near.write(b"hello")).await, Ok(5));
        // The task of the near end turns its engine.
        let both = async { tokio::join!(far.read(&mut bytes), near.read(&mut [])) };
        assert_eq!(in_time(both).await.0, Ok(5), "{progress:?}");
        assert_eq!(bytes[..5], *b"hello");
        let near_rnic = tokio::spawn(tasks.0.a.drive().unwrap());
        drop(near);
        let closed = in_time(far.read(&mut bytes)).await;
        assert_eq!(closed, Err(StreamError::PeerClosed), "{progress:?}");
        near_rnic.abort();
    }
}

#[tokio::test(flavor = "current_thread")]
async fn tasks_end_with_their_rnic() {
    for progress in ALL {
        let tasks = Tasks::new(progress);
        let (end, events) = (
            AsyncEnd::new(&tasks.0.a),
            tasks.0.a.events().into_async().unwrap(),
        );
        let (_silent, mut connecting) = (tasks.listen_at(SILENT_PORT), AsyncEnd::new(&tasks.0.a));
        let changes = end.qp.state_changes().unwrap().into_async().unwrap();
        let driver = tokio::spawn(tasks.0.a.drive().unwrap());
        let all = async {
            tokio::join!(
                end.channel.next(),
                events.next(),
                changes.wait_for(|state| state == QpState::Rts),
                connecting.connect_to(SILENT_PORT),
                async {
                    tokio::task::yield_now().await;
                    tasks.0.a.close().unwrap();
                },
            )
        };
        let (channel, events, state, connected, ()) = in_time(all).await;
        let closed = RnicEnded::Unavailable(RnicUnavailable::Closed);
        assert_eq!(channel.unwrap_err(), closed);
        assert_eq!(events.unwrap_err(), closed);
        assert_eq!(state.unwrap_err(), closed);
        assert!(matches!(connected, Err(ConnectError::Unavailable(_))));
        in_time(driver).await.unwrap().unwrap();
    }
}

/// One task looks before the runtime has seen the descriptor that is to wake the other task.
#[tokio::test(flavor = "current_thread")]
async fn two_tasks_await_states_of_the_same_queue_pair() {
    for progress in ALL {
        let tasks = Tasks::new(progress);
        let (mut a, _b) = tasks.connect(&mut tasks.listen()).await;
        let changes = Arc::new(a.qp.state_changes().unwrap().into_async().unwrap());
        let its = Arc::clone(&changes);
        let waits =
            tokio::spawn(async move { its.wait_for(|state| state == QpState::Error).await });
        tokio::task::yield_now().await;
        a.qp.abort().unwrap();
        eventually("the state", || a.qp.state() == QpState::Error);
        {
            let mut other = pin!(changes.wait_for(|state| state == QpState::Rts));
            assert!(poll_once(other.as_mut()).await.is_none());
        }
        let state = in_time(waits).await.unwrap();
        assert_eq!(state, Ok(QpState::Error), "{progress:?}");
    }
}

/// No task awaits the connecting side's objects: its request leaves only if a task turns the
/// engine. The program may have waited before by itself.
#[tokio::test(flavor = "current_thread")]
async fn inline_engine_is_turned_by_a_task() {
    for waits_before in [false, true] {
        let progress_at = |side| match side {
            Side::A => Progress::Inline,
            Side::B => Progress::Thread,
        };
        let rnics = MemoryRnics::open(|side| rnic(side, progress_at(side)));
        let MemoryRnics {
            a,
            b,
            cable: _cable,
        } = rnics;
        if waits_before {
            let nothing = a.events().wait(Duration::from_millis(1)).unwrap();
            assert_eq!(nothing, None);
        }
        let at = (Side::B.address(), PORT);
        let mut listener = b.listen(at.into()).unwrap().into_async().unwrap();
        let driver = tokio::spawn(a.drive().unwrap());
        let mut end = AsyncEnd::new(&a);
        let connecting = end.qp.begin_connect(at.into(), b"", TIMEOUT).unwrap();
        let request = in_time(listener.accept()).await.unwrap();
        request.reject(b"no").unwrap();
        let rejected = in_time(connecting.into_future()).await;
        assert!(matches!(rejected, Err(ConnectError::Rejected { .. })));
        drop((end, a));
        in_time(driver).await.unwrap().unwrap();
    }
}
