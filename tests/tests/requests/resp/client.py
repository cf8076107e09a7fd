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
    assert client.command_count() == 19

    assert client.execute_command("CL.THROTTLE", user, 1, 1, 60) == [0, 2, 1, -1, 60]
    answer = client.execute_command("CHECK", user, "search")
    assert answer[:3] == [1, 4, -1] and answer[4:] == ["search", "allowed"], answer

    pipeline = client.pipeline(transaction=False)
    for number in range(2_000):
        pipeline.execute_command("ECHO", f"{number}")
    assert pipeline.execute() == [f"{number}" for number in range(2_000)]

    # What this library sends unless it is told otherwise: MULTI and EXEC around a pipeline.
    transaction = client.pipeline()
    transaction.execute_command("CHECK", user, "search")
    transaction.execute_command("CHECK", user, "search", 9)
    first, second = transaction.execute()
    assert (first[:2], second[0]) == ([1, 3], 0), (first, second)
    broken = client.pipeline()
    broken.execute_command("CHECK", user, "search")
    broken.execute_command("NONSENSE")
    try:
        broken.execute()
        raise AssertionError("a command that does not exist was carried out")
    except redis.ResponseError as error:
        assert "unknown command" in str(error), error
    assert client.execute_command("CHECK", user, "search", "PEEK")[1] == 3, "nothing was charged"

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
