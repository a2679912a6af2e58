//! The admin port over real sockets.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::super::client::readiness;
use super::*;
use crate::app::tests::api;
use crate::config::Config;
use crate::console::admin::api::tests::deaths::add;
use crate::console::admin::api::tests::{broker, config, lenient};
use crate::http::{Place, basic};

const LONG: Duration = Duration::from_secs(3600);
const SOON: Duration = Duration::from_millis(50);
const IN_TIME: Duration = Duration::from_secs(20);

struct Served {
    address: SocketAddr,
    metrics: Metrics,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// Not ready. `permits`: connections at once.
async fn start(permits: usize, patience: Duration, api: Option<Api>) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let ports = Ports {
        plain: Some(listener.into()),
        tls: None,
    };
    let (metrics, stop) = (Metrics::new(), CancellationToken::new());
    let rooms = Rooms::new(permits);
    let api = api.map(|api| Api {
        rooms: rooms.clone(),
        ..api
    });
    let mut limits = Config::default().reloadable.limits;
    limits.admin_timeout = patience;
    let server = Server {
        metrics: metrics.clone(),
        readiness: Readiness::new([]),
        rooms,
        workers: Workers::start(1).expect("no thread"),
        limits: LiveLimits::new(limits),
        api,
    };
    let task = tokio::spawn(server.serve(ports, stop.clone().cancelled_owned()));
    Served {
        address,
        metrics,
        stop,
        task,
    }
}

impl Served {
    /// Whether the limit was met.
    fn has_met(&self, limit: &str) -> bool {
        let sample = format!("dlx_proxy_limits_met_total{{limit=\"{limit}\"}} ");
        self.metrics.encode().contains(&sample)
    }

    async fn send(&self, bytes: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.expect("accepted");
        stream.write_all(bytes.as_bytes()).await.expect("sent");
        stream
    }

    async fn half(&self) -> TcpStream {
        self.send("GET /rea").await
    }

    /// A request of somebody who has logged in.
    async fn ask(&self, path: &str, header: &str) -> TcpStream {
        let login = basic(b"me", b"secret");
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {login}\r\n{header}\r\n"
        );
        self.send(&request).await
    }

    /// [`readiness`] has a short timeout, too short for a busy machine.
    async fn readiness(&self) -> String {
        let asked = async {
            loop {
                if let Ok(answer) = readiness(&Place::of(self.address, None)).await {
                    return answer;
                }
            }
        };
        timeout(IN_TIME, asked).await.expect("an answer in time")
    }
}

/// What comes until the end.
async fn rest(mut stream: impl AsyncReadExt + Unpin) -> io::Result<String> {
    let mut rest = String::new();
    let read = timeout(IN_TIME, stream.read_to_string(&mut rest)).await;
    read.expect("in time").map(|_| rest)
}

async fn is_cut_off(stream: TcpStream) {
    match rest(stream).await {
        Ok(answer) => assert!(!answer.contains("200"), "{answer}"),
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
    }
}

#[tokio::test]
async fn whoever_does_not_end_a_request_is_cut_off() {
    let served = start(1, SOON, None).await;
    is_cut_off(served.half().await).await;
    assert!(served.has_met("admin-timeout"));
}

#[tokio::test]
async fn the_end_does_not_wait_for_half_a_request() {
    let served = start(2, LONG, None).await;
    let waiting = served.half().await;
    served.readiness().await; // so the one before is accepted
    served.stop.cancel();
    let ended = timeout(IN_TIME, served.task).await;
    ended.expect("in time").expect("no panic");
    is_cut_off(waiting).await;
}

#[tokio::test]
async fn one_too_many_takes_the_place_of_the_oldest_that_has_not_asked() {
    let served = start(2, LONG, None).await;
    let (oldest, mut newer) = (served.half().await, served.half().await);
    assert_eq!(served.readiness().await, "not listening yet\n");
    is_cut_off(oldest).await;
    newer
        .write_all(b"dyz HTTP/1.0\r\n\r\n")
        .await
        .expect("sent");
    let told = rest(newer).await.expect("an answer");
    assert!(told.contains("503"), "{told}");
    assert!(served.has_met("max-admin-connections"));
}

/// Long requests have separate permits, so that open paths are answered at once; slow readers make
/// room.
#[tokio::test]
async fn what_is_open_to_all_is_answered_however_many_ask_for_something_else() {
    let mut silent = config(broker(Vec::new()).await);
    silent.reloadable.limits.browse_timeout = LONG;
    let served = start(4, LONG, Some(api(&silent).0)).await;
    let look = || served.ask("/api/v1/vhosts/%2F/queues/q/dead-letters", "");
    let _under_way = (look().await, look().await);
    // So the two before are heard.
    served.readiness().await;
    let told = rest(look().await).await.expect("an answer");
    let is_full = told.starts_with("HTTP/1.1 503") && told.contains(FULL);
    assert!(is_full, "{told}");
    let (first, _second) = (served.half().await, served.half().await);
    assert_eq!(served.readiness().await, "not listening yet\n");
    is_cut_off(first).await;
    assert!(served.has_met("max-admin-connections"));
}

/// A live answer is unfinished by design, so its reader is not slow.
#[tokio::test]
async fn a_live_answer_is_not_cut_off_and_ends_with_the_process() {
    let (api, _) = api(&lenient().await);
    let known = api.known.clone();
    let served = start(2, SOON, Some(api)).await;
    let live = served.ask("/api/v1/vhosts/%2F/deaths", "Accept: text/event-stream\r\n");
    let mut stream = BufReader::new(live.await);
    until(&mut stream, "id: ").await;
    let begun = Instant::now();
    while begun.elapsed() < 4 * SOON {
        add(&known, "mine");
        until(&mut stream, "event: death").await;
    }
    assert!(!served.has_met("admin-timeout"));
    served.stop.cancel();
    // Whole, to the last chunk of its body.
    let rest = rest(stream).await.expect("an end");
    assert!(rest.ends_with("\r\n0\r\n\r\n"), "{rest}");
}

async fn until(reader: &mut BufReader<TcpStream>, words: &str) {
    let mut line = String::new();
    while !line.starts_with(words) {
        line.clear();
        let read = timeout(IN_TIME, reader.read_line(&mut line)).await;
        assert!(
            read.expect("in time").expect("a line") > 0,
            "it ended before {words}"
        );
    }
}

#[tokio::test]
async fn whoever_reads_on_is_not_too_slow() {
    let (tell, until) = watch::channel(None);
    let in_time = Duration::from_secs(1);
    let over = tokio::spawn(too_slow(until));
    let begun = Instant::now();
    while begun.elapsed() < in_time * 3 / 2 {
        tell.send_replace(Some(Instant::now() + in_time));
        sleep(Duration::from_millis(20)).await;
    }
    assert!(!over.is_finished());
    over.await.expect("no panic");
}

/// Readers below the minimum rate hold what others wait for.
#[test]
fn whoever_reads_on_but_little_is_too_slow() {
    let (now, in_time) = (Instant::now(), Duration::from_secs(10));
    let ago = |seconds| now - Duration::from_secs(seconds);
    for (bytes, answered, is_in_time) in [
        (0, now, true),
        (0, ago(10), false),
        // It has just read a piece, so it has as long for the next one.
        (64 << 20, now, true),
        (100 * (64 << 10), ago(100), true),
        (89 * (64 << 10), ago(100), false),
        (u64::MAX, ago(600), false),
    ] {
        let until = next_piece(bytes, answered, in_time);
        assert_eq!(until > Instant::now(), is_in_time, "{bytes} {answered:?}");
        assert!(until <= Instant::now() + in_time);
    }
}
