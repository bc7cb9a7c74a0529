"""Documents that the applications open, written inside the replica by one script.

Everything is generated from a seed, so every replica and every run sees the same files.
"""

from __future__ import annotations

FOLDER = "/home/user/settle"

SCRIPT = r"""
import os, random, struct, sys, zlib
folder = sys.argv[1]
rng = random.Random(1)
words = ("lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor incididunt ut "
         "labore et dolore magna aliqua enim minim veniam quis nostrud").split()
def text(count):
    return " ".join(rng.choice(words) for _ in range(count))
def write(name, content):
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(content)
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
os.makedirs(os.path.join(folder, "saved"), exist_ok=True)
size = 640
row = b"".join(bytes((x * 255 // size, 160, 99)) for x in range(size))
rows = (b"\0" + row) * size
with open(os.path.join(folder, "picture.png"), "wb") as file:
    file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0))
               + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
write("data.csv", "\n".join(",".join(str(rng.randint(1, 999)) for _ in range(12)) for _ in range(200)) + "\n")
write("text.txt", "\n".join(text(14) for _ in range(300)) + "\n")
write("doc.txt", "\n\n".join(text(70) for _ in range(40)) + "\n")
for folder_index in range(12):
    for file_index in range(8):
        write("files/folder%02d/file%d.txt" % (folder_index, file_index), "x")
for file_index in range(6):
    write("files/note%d.txt" % file_index, "note")
style = ("<meta charset=utf-8><style>body{font:18px sans-serif;margin:20px}.at{position:absolute}"
         "input,button,select,textarea{font-size:18px}button{top:360px;width:120px;height:40px}</style>")
back = "<p><a href=form.html>back to the form</a></p>"
write("long.html", "<title>Long</title>" + style + "<h1>Long</h1>" + back
      + "".join("<h3>Section %d</h3><p>%s</p>" % (i, text(120)) for i in range(80)))
write("two.html", "<title>Two</title>" + style + "<h1>Two</h1>" + back
      + "".join("<p>Paragraph %d %s</p>" % (i, text(40)) for i in range(15)))
rows = ("let t='<table border=1>';for(let i=0;i<300;i++)t+='<tr><td>row '+i+'<td>'+i*i;"
        "out.innerHTML=t+'</table>'")
write("form.html", "<title>Form</title>" + style + '''
<h1>Form</h1>
<p class=at style="left:20px;top:100px"><a href=two.html>Page two</a></p>
<p class=at style="left:220px;top:100px"><a href=long.html>Long page</a></p>
<form onsubmit="out.textContent='Sent '+n.value;return false">
<input class=at id=n autocomplete=off style="left:20px;top:180px;width:300px">
<label class=at style="left:20px;top:240px"><input type=checkbox> check me</label>
<select class=at style="left:20px;top:300px;width:160px"><option>Alpha<option>Beta<option>Gamma</select>
<button class=at style="left:20px">Send</button>
<button class=at type=button style="left:200px" onclick="ROWS">Table</button>
<button class=at type=button style="left:380px" onclick="alert('hello')">Alert</button>
<textarea class=at style="left:700px;top:180px;width:500px;height:200px"></textarea></form>
<div id=out class=at style="left:20px;top:430px">nothing yet</div>
'''.replace("ROWS", rows))
"""
