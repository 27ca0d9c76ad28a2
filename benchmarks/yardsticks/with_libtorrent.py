"""libtorrent: one file to many, each piece from any peer that has it. Run by the system's Python, which has
libtorrent.

    with_libtorrent.py ADDRESS TORRENT FOLDER PEER...

If TORRENT does not exist, it is made from the file in FOLDER, and this process is the seed. It ends when it is
killed, and reports on stdout when it has the whole file. Peers get each other's addresses: no tracker, no search.
TCP, which is quicker here.
"""

import sys
import time
from pathlib import Path

import libtorrent as lt

NAME = "large.bin"
PIECE_BYTES = 2**18
PORT = 6881


def main(address: str, torrent: Path, folder: Path, peers: list[str]) -> None:
    if not torrent.exists():
        make(torrent, folder)
    session = lt.session(
        {
            "listen_interfaces": f"{address}:{PORT}",
            "enable_dht": False,
            "enable_lsd": False,
            "enable_upnp": False,
            "enable_natpmp": False,
            "enable_incoming_utp": False,
            "enable_outgoing_utp": False,
            "unchoke_slots_limit": 8,
            "max_out_request_queue": 64,
        }
    )
    handle = session.add_torrent({"ti": lt.torrent_info(str(torrent)), "save_path": str(folder)})
    said = False
    last = 0.0
    while True:
        if time.monotonic() > last + 1.0:
            last = time.monotonic()
            for peer in peers:
                handle.connect_peer((peer, PORT))
        if handle.status().is_seeding and not said:
            said = True
            print(time.time(), flush=True)
        time.sleep(0.02)


def make(torrent: Path, folder: Path) -> None:
    files = lt.file_storage()
    lt.add_files(files, str(folder / NAME))
    made = lt.create_torrent(files, PIECE_BYTES, lt.create_torrent.v1_only)
    lt.set_piece_hashes(made, str(folder))
    part = torrent.with_suffix(".part")
    part.write_bytes(lt.bencode(made.generate()))
    part.rename(torrent)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
