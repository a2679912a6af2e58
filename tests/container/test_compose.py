"""docker-compose.yml as it stands: the proxy before a real broker, used, stopped, killed and restarted."""
import contextlib
import itertools
import threading
import urllib.error
import urllib.request

import pika
import pytest

from engine import compose, docker, inside, inspect, log, until

NAMES = itertools.count()


@contextlib.contextmanager
def client(port=5673):
    connection = pika.BlockingConnection(pika.ConnectionParameters(port=port, heartbeat=60))
    yield connection
    with contextlib.suppress(pika.exceptions.AMQPError):
        connection.close()


def queues(channel, **arguments):
    """A queue, and the one that its dead letters go to."""
    number = next(NAMES)
    dead = f"dead-{number}"
    channel.queue_declare(dead, durable=True)
    target = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    channel.queue_declare(f"work-{number}", durable=True, arguments=target | arguments)
    return f"work-{number}", dead


def publish(channel, queue, body):
    channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2))


def taken(channel, queue):
    method, properties, body = channel.basic_get(queue, auto_ack=True)
    return method and (properties, body)


def first_death(channel, dead):
    properties, body = until(20, lambda: taken(channel, dead), f"no dead letter in {dead}")
    (death,) = properties.headers["x-death"]
    return body, death["queue"], death["reason"], death["count"], death["exchange"]


def three_die():
    with client() as connection:
        channel = connection.channel()
        rejects, dead = queues(channel)
        publish(channel, rejects, b"unwanted")
        method, _, _ = until(10, lambda: (got := channel.basic_get(rejects))[0] and got, "no message")
        channel.basic_reject(method.delivery_tag, requeue=False)
        assert first_death(channel, dead) == (b"unwanted", rejects, "rejected", 1, "")
        expires, dead = queues(channel, **{"x-message-ttl": 50})
        publish(channel, expires, b"old")
        assert first_death(channel, dead) == (b"old", expires, "expired", 1, "")
        short, dead = queues(channel, **{"x-max-length": 1})
        publish(channel, short, b"first")
        publish(channel, short, b"second")
        assert first_death(channel, dead) == (b"first", short, "maxlen", 1, "")


def health(name):
    return inspect(name)["State"]["Health"]["Status"]


def wait_healthy(name):
    until(60, lambda: health(name) == "healthy", "it does not become healthy")


def readyz():
    with contextlib.suppress(OSError):
        try:
            with urllib.request.urlopen("http://127.0.0.1:15673/readyz", timeout=5) as answer:
                return answer.status
        except urllib.error.HTTPError as answer:
            return answer.code
    return None


def status(name):
    pid = inspect(name)["State"]["Pid"]
    lines = inside("cat", f"/proc/{pid}/status").stdout.splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def test_three_messages_die_and_their_headers_say_how(up):
    three_die()


def test_it_has_no_rights(up):
    found = status(up)
    assert found["Uid"].split() == ["10001"] * 4
    assert found["Gid"].split() == ["10001"] * 4
    for rights in ("CapEff", "CapPrm", "CapBnd", "CapInh"):
        assert int(found[rights], 16) == 0, rights
    assert found["NoNewPrivs"] == "1"


def test_its_root_cannot_be_written_to(up):
    wrote = inside("docker", "exec", "--user", "0", up, "touch", "/anything", check=False)
    assert wrote.returncode != 0 and "Read-only file system" in wrote.stderr


def test_sighup_reloads_and_clients_stay(up):
    with client() as connection:
        channel = connection.channel()
        docker("kill", "--signal", "HUP", up)
        until(10, lambda: "settings reloaded" in log(up), "no line")
        channel.queue_declare("", exclusive=True)
    assert inspect(up)["RestartCount"] == 0


def test_stop_tells_clients_and_ends_well(up):
    said = []
    with client() as connection:
        def wait():
            try:
                while True:
                    connection.process_data_events(1)
            except pika.exceptions.ConnectionClosedByBroker as closed:
                said.append(closed.reply_code)

        waits = threading.Thread(target=wait, daemon=True)
        waits.start()
        docker("stop", up)
        waits.join(10)
    assert said == [320]
    assert inspect(up)["State"]["ExitCode"] == 0
    docker("start", up)
    wait_healthy(up)


def reject_all(queue, die):
    """Rejects what comes, through the proxy; `die` is called after a part. Whoever is cut off comes back."""
    rejected = 0
    while True:
        try:
            with client() as connection:
                channel = connection.channel()
                channel.basic_qos(prefetch_count=50)
                for method, _, _ in channel.consume(queue, inactivity_timeout=3):
                    if method is None:
                        return
                    channel.basic_reject(method.delivery_tag, requeue=False)
                    rejected += 1
                    if rejected == 150:
                        die()
        except (pika.exceptions.AMQPError, OSError):
            until(60, lambda: readyz() == 200, "the proxy does not come back")


@pytest.mark.parametrize("how", ["by docker kill", "by the system"])
def test_a_kill_loses_nothing(up, how):
    with client() as connection:
        channel = connection.channel()
        queue, dead = queues(channel)
        channel.confirm_delivery()
        bodies = {b"%d" % number for number in range(400)}
        for body in bodies:
            publish(channel, queue, body)

    def die():
        if how == "by docker kill":
            docker("kill", "--signal", "KILL", up)
            assert inspect(up)["State"]["ExitCode"] == 137
            docker("start", up)
        else:  # nobody asked for this end: Docker starts it again
            before = inspect(up)["RestartCount"]
            inside("sh", "-c", f"kill -KILL {inspect(up)['State']['Pid']}")
            until(20, lambda: inspect(up)["RestartCount"] == before + 1, "it is not started again")

    reject_all(queue, die)
    wait_healthy(up)
    with client() as connection:
        channel = connection.channel()
        found = set()
        while got := taken(channel, dead):
            found.add(got[1])
    assert found == bodies


def test_health_follows_the_broker(up):
    compose("stop", "--timeout", "20", "rabbitmq")
    until(10, lambda: readyz() == 503, "it says that it is ready")
    until(40, lambda: health(up) == "unhealthy", "it says that it is healthy")
    compose("start", "rabbitmq")
    wait_healthy(up)
    three_die()
    assert inspect(up)["State"]["Running"]


def test_proxy_and_broker_restart_together(up):
    compose("restart", "--timeout", "20")
    wait_healthy(up)
    three_die()
