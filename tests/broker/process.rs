//! The program from its first line to its last.

use dlx_proxy::amqp::method::MethodId;

use super::lab::{each_broker, until, within};
use super::program::Program;
use super::raw::{Raw, closed};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn says_where_it_listens_and_when_it_is_ready_and_ends_in_order() {
    each_broker(async |broker, vhost| {
        let upstream = broker.upstream(broker.uri.authority.port, &broker.credentials());
        let mut program = Program::start(&upstream, vhost).await;
        until("the ready line", async || {
            !program.lines(&["INFO ready"]).is_empty()
        })
        .await;
        assert!(program.admin.is_ready().await);
        assert_eq!(program.admin.get("/healthz").await.0, 200);
        let mut client = Raw::open(broker, program.address.port(), vhost, Default::default()).await;

        program.signal("TERM");
        let close = within("connection.close", client.read())
            .await
            .expect("a frame");
        let expected = (
            320,
            "CONNECTION_FORCED - dlx-proxy is shutting down".to_owned(),
            (0, 0),
        );
        assert_eq!(closed(&close.payload), Some(expected));
        client.call(0, MethodId::CONNECTION_CLOSE_OK, |_| {}).await;
        let status = program.ended().await;
        assert!(status.success(), "{status}");
        assert_eq!(program.lines(&["listening"]).len(), 2);
        assert_eq!(
            program.lines(&["INFO ended"]).len(),
            1,
            "{:#?}",
            program.lines(&[])
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_ends_at_once() {
    each_broker(async |broker, vhost| {
        let upstream = broker.upstream(broker.uri.authority.port, &broker.credentials());
        let mut program = Program::start(&upstream, vhost).await;
        for _ in 0..2 {
            program.signal("TERM");
        }
        assert!(program.ended().await.success());
    })
    .await;
}
