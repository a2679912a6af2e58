//! The program from its first line to its last.

use super::lab::{each_broker, until};
use super::program::Program;
use super::raw::Raw;

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
        client.hears_of_the_end().await;
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
