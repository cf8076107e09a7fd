# The guest's first and only process. Lines above this one, which `console.rs` writes, set:
#   PROGRAM             the test program, whose modules are suites
#   LOADING             what makes it load the kernel programs and nothing else
#   SUITES              what to run where all suites are expected, in this order
#   SAME_LAYOUT         the daemon of an earlier commit whose maps have the layout of this one's, if it is here
#   OTHER_LAYOUT        one whose maps have another layout
#   CARGO_MANIFEST_DIR  what cargo would have set for the test program
# The kernel's command line says in `expect` what must happen here.
/bin/busybox --install -s /bin
export PATH=/bin TMPDIR=/tmp CARGO_MANIFEST_DIR RUST_MIN_STACK=16777216
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; mount -t tmpfs tmp /tmp
mount -t bpf bpf /sys/fs/bpf
cd /tmp
echo
echo "vm: kernel $(uname -r)"
ip link set lo up
printf '[source]\nlimits = ["100000 packets/s burst 200000"]\n' > policy.toml
(cat policy.toml; echo 'table_entries = 300000') > larger.toml
printf '[source]\nlimits = ["1 packets/day burst 40"]\n' > spent.toml
(cat policy.toml; printf '[[service]]\nname = "web"\nmatch = { protocol = "tcp", ports = [7, 80] }\nsyn_cookies = "1 syns/day burst 1"\n') > cookies.toml

# What the daemon has counted under a name, over all reasons: the first number of that name. `counted` reads it from what `stats` says.
counted() { grep -m 1 "\"$1\":" | grep -o '[0-9]*'; }
count() { ratelimit stats --state /tmp/state --output json | counted "$1"; }

# Starts a daemon on the guest's own loopback, with a policy and, unless it is this commit's, a program, and waits until it says that it is ready.
# The guest as a whole has a limit, and on a busy machine its minutes are short.
start() {
    # Emptied here: the daemon's own process may come to that after somebody has read the word of the daemon before.
    : > daemon.txt
    ${2:-ratelimit} run --policy "$1" --iface lo --state /tmp/state > daemon.txt 2>&1 &
    pid=$!
    while kill -0 $pid 2> /dev/null; do
        grep -q ready daemon.txt && return 0
        sleep 0.5
    done
    cat daemon.txt
    return 1
}

# Killed, it leaves everything in force and counted; the next one takes over, also with a table of another size; detached, nothing is left.
daemon() {
    start policy.toml || return 1
    ping -q -c 3 127.0.0.1 > /dev/null
    before=$(count passed_packets)
    kill -9 $pid; wait $pid
    ping -q -c 3 127.0.0.1 > /dev/null
    start policy.toml || return 1
    after=$(count passed_packets)
    echo "passed before the kill $before, after the restart $after"
    [ "$before" -ge 6 ] && [ "$after" -ge $((before + 6)) ] || return 1
    kill $pid; wait $pid
    start larger.toml || return 1
    ping -q -c 3 127.0.0.1 > /dev/null
    echo "passed with a larger table $(count passed_packets)"
    [ "$(count passed_packets)" -ge 6 ] || return 1
    ratelimit detach --state /tmp/state || return 1
    kill $pid; wait $pid
    [ -z "$(ls /sys/fs/bpf/ratelimit 2> /dev/null)" ] || { ls -R /sys/fs/bpf/ratelimit; return 1; }
}

# A page from a real server to a real client.
page() { [ "$(timeout 60 wget -qO- http://127.0.0.1/page)" = served ] || { echo "the page did not come $1"; return 1; }; }

# The first SYN is the kernel's to answer, the others get cookies, and every page comes: also while no daemon runs, and from the next one.
cookies() {
    echo 2 > /proc/sys/net/ipv4/tcp_syncookies
    mkdir -p www; echo served > www/page
    httpd -p 127.0.0.1:80 -h www
    start cookies.toml || return 1
    page "to the first client" && page "by cookie" || return 1
    kill -9 $pid; wait $pid
    page "while no daemon ran" || return 1
    start cookies.toml || return 1
    page "after the restart" || return 1
    echo "cookies sent $(count cookie_sent), acknowledged $(count cookie_valid)"
    # More are valid than were sent if a request comes before the kernel has made the connection of its acknowledgement: both show the cookie.
    [ "$(count cookie_sent)" = 3 ] && [ "$(count cookie_valid)" -ge 3 ] || return 1
    ratelimit detach --state /tmp/state || return 1
    kill $pid; wait $pid
}

# Sends this many pings, ten a second, and says how many were answered.
answered() { ping -q -c "$1" -i 0.1 -W 1 127.0.0.1 | grep -o '[0-9]* packets received' | grep -o '[0-9]*'; }

# Kills the daemon and starts one of another build, which takes over what the first left attached. Nobody has anything left, and asks all the time:
# a ping that is answered was judged by no policy, or has been given something by the takeover.
take_over() {
    kill -9 $pid; wait $pid
    (while [ ! -e taken ]; do answered 5; done) > pings.txt &
    pings=$!
    start spent.toml "$1" || return 1
    touch taken; wait $pings; rm taken
    echo "$1 took over: $(wc -l < pings.txt) times 5 pings, answered $(grep -vc '^0$' pings.txt) times"
    [ -s pings.txt ] && ! grep -qv '^0$' pings.txt
}

# A connection that a cookie has made goes on when another build takes over, and a block stays: from this build to one whose maps have the same layout, and
# back. Whoever is at the other end repeats what it hears.
connections() {
    echo 2 > /proc/sys/net/ipv4/tcp_syncookies
    nc -ll -p 7 -e cat &
    start cookies.toml || return 1
    ratelimit block add 198.51.100.0/24 --state /tmp/state || return 1
    # The first SYN is the kernel's to answer.
    [ "$(echo first | timeout 60 nc 127.0.0.1 7)" = first ] || { echo "nobody repeats what it hears"; return 1; }
    from=ratelimit
    for build in $SAME_LAYOUT ratelimit; do
        proven=$($from stats --state /tmp/state --output json | counted cookie_valid)
        rm -f heard.txt; : > heard.txt
        (echo begun; while [ ! -e taken ]; do sleep 0.5; done; echo ended) | timeout 600 nc 127.0.0.1 7 > heard.txt &
        speaking=$!
        until grep -q begun heard.txt; do kill -0 $speaking || return 1; sleep 0.5; done
        [ "$($from stats --state /tmp/state --output json | counted cookie_valid)" -gt "$proven" ] || { echo "no cookie was needed"; return 1; }
        kill -9 $pid; wait $pid
        start cookies.toml $build || return 1
        touch taken; wait $speaking; rm taken
        grep -q ended heard.txt || { echo "the connection did not go on under $build"; return 1; }
        $build block list --state /tmp/state | grep -q 198.51.100.0/24 || { echo "$build does not know the block"; return 1; }
        echo "$build took over: the connection goes on, the block stays"
        from=$build
    done
    ratelimit detach --state /tmp/state || return 1
    kill $pid; wait $pid
}

# A daemon of the same layout goes on with the bucket that this one has begun; one of another layout begins with nothing in it; and this one takes over
# from both. A ping is two packets of one source.
upgrade() {
    echo "$(ratelimit --version), $($SAME_LAYOUT --version) with the same layout, $($OTHER_LAYOUT --version) with another"
    start spent.toml || return 1
    first=$(answered 10)
    kill -9 $pid; wait $pid
    start spent.toml $SAME_LAYOUT || return 1
    second=$(answered 20)
    echo "answered before the upgrade $first, after it $second, of a burst for 20"
    [ "$first" = 10 ] && [ "$second" -ge 8 ] && [ "$second" -le 10 ] || return 1
    take_over ratelimit && take_over $OTHER_LAYOUT && take_over ratelimit || return 1
    ratelimit detach --state /tmp/state || return 1
    kill $pid; wait $pid
    [ "$(answered 3)" = 3 ] || { echo "pings are not answered without a limiter either"; return 1; }
    [ -z "$(ls /sys/fs/bpf/ratelimit 2> /dev/null)" ] || { ls -R /sys/fs/bpf/ratelimit; return 1; }
    connections
}

case "$expect" in
refusal)
    echo "vm: suite refusal begins"
    ratelimit run --policy policy.toml --iface lo 2>&1 | sed 's/^/vm: said /'
    ratelimit run --policy policy.toml --iface lo > /dev/null 2>&1
    echo "vm: suite refusal ended with $?"
    ;;
loads)
    echo "vm: suite object begins"
    $PROGRAM $LOADING
    echo "vm: suite object ended with $?"
    ;;
short)
    echo "vm: suite object begins"
    UNTRACED=1 $PROGRAM $LOADING
    echo "vm: suite object ended with $?"
    echo "vm: suite cookies begins"
    cookies
    echo "vm: suite cookies ended with $?"
    ;;
suites)
    for suite in $SUITES; do
        echo "vm: suite $suite begins"
        # What the verifier looked at, which is read here, and how many packets were compared, which the console keeps.
        case $suite in object | differential) show=--nocapture ;; *) show= ;; esac
        # Shares of a total are per CPU: moving between CPUs, the kernel's side refuses a little earlier than the host's.
        [ $suite = differential ] && pin="taskset 1" || pin=
        case $suite in
        daemon | cookies | upgrade) $suite ;;
        *) RATELIMIT_GUEST=1 $pin $PROGRAM $suite:: --test-threads=1 $show ;;
        esac
        echo "vm: suite $suite ended with $?"
    done
    ;;
esac
echo "vm: done"
poweroff -f
