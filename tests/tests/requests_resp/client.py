"""Asks the decision service with the client library that Python programs use for Redis. The port is the argument."""

import sys
import threading

import redis

port = int(sys.argv[1])

for version in (2, 3):
    client = redis.Redis(port=port, protocol=version, client_name="test", decode_responses=True)
    user = f"python{version}"
    assert client.ping() is True
    assert client.echo("hi") == "hi"
    assert client.client_getname() == "test"
    assert client.info()["server_name"] == "ratelimit"
    assert "check" in client.command()
    assert client.command_count() == 16

    assert client.execute_command("CL.THROTTLE", user, 1, 1, 60) == [0, 2, 1, -1, 60]
    answer = client.execute_command("CHECK", user, "search")
    if version == 3:
        assert answer["allowed"] == 1 and answer["remaining"] == 4 and answer["outcome"] == "allowed", answer
    else:
        assert answer[:3] == [1, 4, -1] and answer[4:] == ["search", "allowed"], answer

    pipeline = client.pipeline(transaction=False)
    for number in range(2_000):
        pipeline.execute_command("ECHO", f"{number}")
    assert pipeline.execute() == [f"{number}" for number in range(2_000)]

    try:
        client.execute_command("CHECK", user, "nothing")
        raise AssertionError("an API that is not in the policy was answered")
    except redis.ResponseError as error:
        assert "is not in the policy" in str(error), error

    # Many threads on a pool: a limit of 10 admits 10 of 200.
    admitted = []

    def ask():
        for _ in range(20):
            admitted.append(client.execute_command("CL.THROTTLE", f"pool{version}", 9, 1, 3600)[0] == 0)

    threads = [threading.Thread(target=ask) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(admitted), sum(admitted)) == (200, 10), (len(admitted), sum(admitted))
    print(version, "done")
