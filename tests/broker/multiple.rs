//! Acks, nacks and rejects over withheld, settled and outstanding tags, in an order drawn at random: each script runs through the proxy and
//! directly, and beside a model. The channel must be closed by the same command in the same words, and every message must end in the
//! same place. `DLX_TEST_SEED=n` draws a run again.

mod script;
mod side;

use futures::future::join;

use super::lab::{BOTH, Way, each};
use super::random::{self, Random};
use super::scene::Kind;
use script::Script;
use side::Side;

/// Scripts per broker and mode, over both queue types.
const ROUNDS: usize = 500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_channel_is_closed_exactly_when_it_is_without_the_proxy() {
    let seed = random::seed();
    each(BOTH, async |way| {
        let lanes = join(
            run(way, Kind::Classic, Random(seed)),
            run(way, Kind::Quorum, Random(seed ^ 1)),
        );
        let (classic, quorum) = lanes.await;
        let closed = classic + quorum;
        println!(
            "{} {:?}: {ROUNDS} scripts, {closed} channels closed by the broker",
            way.broker.version, way.mode
        );
        // Or else only one of the two ends was tried.
        assert!((ROUNDS / 10..ROUNDS - ROUNDS / 10).contains(&closed));
    })
    .await;
}

/// Half of the scripts. Returns how many channels were closed.
async fn run(way: &Way, kind: Kind, mut random: Random) -> usize {
    let port = way.broker.uri.authority.port;
    let mut proxied = Side::open(way, kind, "proxied", way.proxy.address.port()).await;
    let mut direct = Side::open(way, kind, "direct", port).await;
    let mut closed = 0;
    for round in 0..ROUNDS / 2 {
        let script = Script::draw(&mut random);
        let model = script.model();
        let ends = join(proxied.play(round, &script), direct.play(round, &script)).await;
        // The model first: where it is wrong, the test is.
        let context = format!("{kind} queue, round {round}: {script:#?}");
        assert_eq!(model, ends.1, "the broker itself; {context}");
        assert_eq!(model, ends.0, "through the proxy; {context}");
        closed += usize::from(model.closed.is_some());
    }
    proxied.close().await;
    direct.close().await;
    closed
}
