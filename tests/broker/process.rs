//! The program from its first line to its last.

use dlx_proxy::amqp::method::MethodId;

use super::lab::{each_broker, until};
use super::program::Program;
use super::raw::{self, Raw};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn says_where_it_listens_and_when_it_is_ready_and_ends_in_order() {
    each_broker(async |broker, vhost| {
        let upstream = broker.upstream(broker.uri.authority.port, &broker.credentials());
        let mut program = Program::start(&upstream, vhost).await;
        program.has_lines(1, &["INFO ready"]).await;
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_that_are_reloaded_act_on_connections_that_are_open() {
    each_broker(async |broker, vhost| {
        let path = std::env::temp_dir().join(format!("{vhost}-{}.toml", broker.version));
        let write = |clients: u32, target: &str| {
            let text = format!(
                "max-connections = {clients}\n[[policy]]\nname = \"p\"\nvhost = \"{vhost}\"\npattern = \"^orders$\"\nmode = \"keep\"\n\
                 definition = {{ dead-letter-exchange = \"\", dead-letter-routing-key = \"{target}\" }}\n"
            );
            std::fs::write(&path, text).expect("a temporary file");
        };
        write(1, "one");
        let upstream = broker.upstream(broker.uri.authority.port, &broker.credentials());
        let environment = [("DLX_PROXY_CONFIG", path.to_str().expect("UTF-8"))];
        let program = Program::start_with(&upstream, vhost, &environment).await;
        until("it is ready", async || program.admin.is_ready().await).await;
        let mut client = Raw::open(broker, program.address.port(), vhost, Default::default()).await;
        client.open_channel(1).await;
        for queue in ["one", "two", "orders"] {
            client.declare(1, queue, &[]).await;
        }
        client.consume(1, "orders", false).await;
        let mut dies = async |tag: u64, target: &str| {
            let mut out = Vec::new();
            raw::publish(&mut out, 1, "orders", b"hi", 4096);
            client.send(&out).await;
            client.content(1, MethodId::BASIC_DELIVER).await;
            client.reject(1, tag).await;
            until(format_args!("a dead letter in {target}"), async || {
                client.ready(1, target).await == 1
            })
            .await;
        };
        dies(1, "one").await;
        let port = program.address.port();
        let second = Raw::open(broker, port, vhost, Default::default());
        let mut second = std::pin::pin!(second);
        assert!(futures::poll!(&mut second).is_pending());

        write(2, "two");
        program.signal("HUP");
        second.await.close().await;
        dies(2, "two").await;
        program.has_lines(1, &["INFO settings reloaded"]).await;
        program.stop().await;
        let _ = std::fs::remove_file(&path);
    })
    .await;
}
