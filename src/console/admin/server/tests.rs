//! The admin port over real sockets.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::super::client::{NoAnswer, readiness};
use super::*;
use crate::console::admin::api::tests::deaths::{add, lenient};
use crate::console::admin::api::tests::{broker, parts};
use crate::console::admin::watches::Watches;
use crate::http::Place;
use crate::http::basic;
use crate::machine::{Limits, Wall};
use crate::recent::RecentDeaths;

const LONG: Duration = Duration::from_secs(3600);

struct Served {
    address: SocketAddr,
    metrics: Metrics,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

async fn start(permits: usize, patience: Duration, readiness: Readiness) -> Served {
    start_with(permits, patience, readiness, None).await
}

async fn start_with(
    permits: usize,
    patience: Duration,
    readiness: Readiness,
    api: Option<Api>,
) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let ports = Ports {
        plain: Some(listener.into()),
        tls: None,
    };
    let (metrics, stop) = (Metrics::new(), CancellationToken::new());
    let server = Server {
        metrics: metrics.clone(),
        readiness,
        rooms: Rooms::new(permits),
        workers: Workers::start(1).expect("no thread"),
        limits: LiveLimits::new(Limits {
            admin_timeout: patience,
            ..crate::config::Config::limits_of_tests()
        }),
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
    fn has_met(&self, limit: &str) -> bool {
        let sample = format!("dlx_proxy_limits_met_total{{limit=\"{limit}\"}} 1\n");
        self.metrics.encode().contains(&sample)
    }

    fn has_met_often(&self, limit: &str) -> bool {
        let sample = format!("dlx_proxy_limits_met_total{{limit=\"{limit}\"}} ");
        self.metrics.encode().contains(&sample)
    }
}

async fn beside<T: Send + 'static>(talk: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(talk).await.expect("no panic")
}

fn half(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("accepted");
    stream.write_all(b"GET /rea").expect("sent");
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .expect("an option");
    stream
}

fn is_cut_off(mut stream: TcpStream) {
    let mut answer = String::new();
    if let Err(error) = stream.read_to_string(&mut answer) {
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
    assert!(!answer.contains("200"), "{answer}");
}

fn asked(address: SocketAddr) -> Result<String, NoAnswer> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime
        .expect("a runtime")
        .block_on(readiness(&Place::of(address, None)))
}

/// The first bytes of the answer: [`readiness`] has a short timeout, too short for a busy machine.
fn answer(address: SocketAddr) -> String {
    let begun = Instant::now();
    loop {
        match asked(address) {
            Ok(answer) => return answer,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(20), "{error}"),
        }
    }
}

#[tokio::test]
async fn readiness_is_asked_over_http() {
    let readiness = Readiness::new([]);
    let Served { address, .. } = start(1, LONG, readiness.clone()).await;
    let asked = async || beside(move || answer(address)).await;
    assert_eq!(asked().await, "not listening yet\n");
    readiness.listening();
    assert_eq!(asked().await, "");
}

#[tokio::test]
async fn whoever_does_not_end_a_request_is_cut_off() {
    let soon = Duration::from_millis(50);
    let served = start(1, soon, Readiness::new([])).await;
    let address = served.address;
    beside(move || is_cut_off(half(address))).await;
    assert!(served.has_met("admin-timeout"));
}

#[tokio::test]
async fn the_end_does_not_wait_for_half_a_request() {
    let served = start(2, LONG, Readiness::new([])).await;
    let address = served.address;
    let waiting = beside(move || {
        let waiting = half(address);
        answer(address); // so the one before is accepted
        waiting
    })
    .await;
    served.stop.cancel();
    let ended = timeout(Duration::from_secs(20), served.task).await;
    ended.expect("in time").expect("no panic");
    beside(move || is_cut_off(waiting)).await;
}

#[tokio::test]
async fn one_too_many_takes_the_place_of_the_oldest_that_has_not_asked() {
    let served = start(2, LONG, Readiness::new([])).await;
    let address = served.address;
    beside(move || {
        let (oldest, mut newer) = (half(address), half(address));
        answer(address);
        is_cut_off(oldest);
        newer.write_all(b"dyz HTTP/1.0\r\n\r\n").expect("sent");
        let mut told = String::new();
        newer.read_to_string(&mut told).expect("an answer");
        assert!(told.contains("503"), "{told}");
    })
    .await;
    assert!(served.has_met("max-admin-connections"));
}

/// Long requests have separate permits, so that open paths are answered at once; slow readers make
/// room.
#[tokio::test]
async fn what_is_open_to_all_is_answered_however_many_ask_for_something_else() {
    let watches = Watches::new(RecentDeaths::new(Wall(0)), 4);
    let (api, _) = parts(broker(Vec::new()).await, 4, LONG, watches);
    let served = start_with(4, LONG, Readiness::new([]), Some(api)).await;
    let address = served.address;
    beside(move || {
        let look = || {
            let mut stream = TcpStream::connect(address).expect("accepted");
            let login = basic(b"me", b"secret");
            let request = format!(
                "GET /api/v1/vhosts/%2F/queues/q/dead-letters HTTP/1.1\r\nHost: localhost\r\nAuthorization: {login}\r\n\r\n"
            );
            stream.write_all(request.as_bytes()).expect("sent");
            let patience = Some(Duration::from_secs(20));
            stream.set_read_timeout(patience).expect("an option");
            stream
        };
        let _under_way = [look(), look()];
        // So the two before are heard.
        answer(address);
        let mut told = String::new();
        look().read_to_string(&mut told).expect("an answer");
        assert!(told.starts_with("HTTP/1.1 503") && told.contains(FULL), "{told}");
        let mut silent: Vec<_> = (0..2).map(|_| half(address)).collect();
        assert_eq!(asked(address).ok().as_deref(), Some("not listening yet\n"));
        is_cut_off(silent.remove(0));
    })
    .await;
    assert!(served.has_met_often("max-admin-connections"));
}

/// A live answer is unfinished by design, so its reader is not slow.
#[tokio::test]
async fn a_live_answer_is_not_cut_off_and_ends_with_the_process() {
    let soon = Duration::from_millis(50);
    let recent = RecentDeaths::new(Wall(0));
    let watches = Watches::new(recent.clone(), 2);
    let (api, _) = parts(lenient().await, 1, Duration::from_secs(20), watches);
    let served = start_with(2, soon, Readiness::new([]), Some(api)).await;
    let address = served.address;
    let mut stream = beside(move || {
        let mut stream = TcpStream::connect(address).expect("accepted");
        let login = basic(b"me", b"secret");
        let request = format!(
            "GET /api/v1/vhosts/%2F/deaths HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nAuthorization: {login}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).expect("sent");
        let patience = Some(Duration::from_secs(20));
        stream.set_read_timeout(patience).expect("an option");
        let mut reader = BufReader::new(stream);
        until(&mut reader, "id: ");
        reader
    })
    .await;
    let begun = Instant::now();
    while begun.elapsed() < 4 * soon {
        add(&recent, "mine");
        stream = beside(move || {
            until(&mut stream, "event: death");
            stream
        })
        .await;
    }
    assert!(!served.has_met("admin-timeout"));
    served.stop.cancel();
    // Whole, to the last chunk of its body.
    beside(move || {
        let mut rest = String::new();
        stream.read_to_string(&mut rest).expect("an end");
        assert!(rest.ends_with("\r\n0\r\n\r\n"), "{rest}");
    })
    .await;
}

#[tokio::test]
async fn whoever_reads_on_is_not_too_slow() {
    let (tell, until) = watch::channel(None);
    let in_time = Duration::from_secs(1);
    let over = tokio::spawn(too_slow(until));
    let begun = Instant::now();
    while begun.elapsed() < in_time * 3 / 2 {
        tell.send_replace(Some(tokio::time::Instant::now() + in_time));
        sleep(Duration::from_millis(20)).await;
    }
    assert!(!over.is_finished());
    over.await.expect("no panic");
}

/// Readers below the minimum rate hold what others wait for.
#[test]
fn whoever_reads_on_but_little_is_too_slow() {
    let in_time = Duration::from_secs(10);
    let ends = |octets| {
        let answered = tokio::time::Instant::now();
        let until = next_piece(octets, answered, in_time);
        until.duration_since(answered).as_secs()
    };
    assert_eq!(ends(0), 10);
    // It has just read a piece, so it has as long for the next one.
    assert_eq!(ends(64 << 20), 10);
    let answered = tokio::time::Instant::now() - Duration::from_secs(100);
    let until = |octets| next_piece(octets, answered, in_time) > tokio::time::Instant::now();
    assert!(until(100 * (64 << 10)) && !until(89 * (64 << 10)));
    let answered = answered.checked_sub(LIVE_FOR).expect("so long ago");
    assert!(next_piece(u64::MAX, answered, in_time) < tokio::time::Instant::now());
}

fn until(reader: &mut BufReader<TcpStream>, words: &str) {
    let mut line = String::new();
    while !line.starts_with(words) {
        line.clear();
        let read = reader.read_line(&mut line).expect("a line");
        assert!(read > 0, "it ended before {words}");
    }
}
