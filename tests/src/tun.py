"""A tun interface of the network namespace that this runs in: tun.py NAME [LINK_TYPE].

Commands come in by standard input, one a line, each answered by one line:
    send COUNT HEX      has COUNT copies of a packet come in by the interface
    sent MILLISECONDS   what the host sends out by it meanwhile, as hexadecimal words
The interface goes with the process.
"""

import fcntl
import os
import select
import struct
import sys
import time

TUNSETIFF = 0x400454CA
TUNSETLINK = 0x400454CD
IFF_TUN, IFF_TAP, IFF_NO_PI = 1, 2, 0x1000

name, link_type = sys.argv[1], sys.argv[2:]
tun = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
if link_type:
    fcntl.ioctl(tun, TUNSETLINK, int(link_type[0]))
print("there", flush=True)
for line in sys.stdin:
    verb, *words = line.split()
    if verb == "send":
        count, packet = int(words[0]), bytes.fromhex(words[1])
        for _ in range(count):
            os.write(tun, packet)
        print("done", flush=True)
    else:
        end = time.monotonic() + int(words[0]) / 1000
        packets = []
        while (left := end - time.monotonic()) > 0:
            if select.select([tun], [], [], left)[0]:
                packets.append(os.read(tun, 65536).hex())
        print(*packets, flush=True)
