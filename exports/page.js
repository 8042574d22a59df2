// The page: what is drawn, given or filled in, what is answered, and what each layer makes of it.

// Where `dnnstack serve` answers, which it writes here; null: the page computes.
const SERVER = null;
const $ = (id) => document.getElementById(id);
const model = JSON.parse($("model").textContent);
const weights = SERVER ? null : unpacked(model.arrays, $("weights").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");
const isOpen = model.kind === "numbers" || model.kind === "yes_no";
const pad = $("pad"), pen = pad.getContext("2d", { willReadFrequently: true });
let asked = 0, repeat = () => {};

function create(tag, properties, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

// ---------------------------------------------------------------- answers

const percent = (value) => `${(100 * value).toFixed(1)}%`;
const said = (value) => (model.kind === "numbers" ? `${+value.toPrecision(6)}` : percent(value));
const word = (value) => (model.kind === "yes_no" ? (value > model.threshold ? "yes " : "no ") : "");

// Of many classes the twelve likeliest, best first; of numbers and questions all.
function show(values) {
  const order = values.map((_, at) => at);
  const ranked = [...order].sort((a, b) => values[b] - values[a]);
  const rows = isOpen || values.length <= 12 ? order : ranked.slice(0, 12);
  const bars = rows.map((at) => {
    const bar = create("div", { hidden: model.kind === "numbers" }, create("i", {}));
    bar.firstChild.style.width = percent(values[at]);
    const parts = [model.classes[at], word(values[at]) + said(values[at])];
    const [name, value] = parts.map((text) => create("span", {}, text));
    const isBest = isOpen ? word(values[at]) === "yes " : at === ranked[0];
    return create("li", { className: isBest ? "best" : "" }, name, bar, value);
  });
  $("bars").replaceChildren(...bars);
  $("bars").classList.remove("blank");
  $("told").hidden = isOpen && !model.picture;
  $("best").textContent = isOpen ? "" : model.classes[ranked[0]];
  $("sure").textContent = isOpen ? "" : said(values[ranked[0]]);
}

function blank(text = "") {
  asked++;
  show(model.classes.map(() => 0));
  $("note").textContent = text;
  $("best").textContent = isOpen ? "" : "–";
  $("sure").textContent = "";
  $("seen").hidden = $("layers").hidden = true;
  $("bars").classList.add("blank");
}

// ---------------------------------------------------------------- pictures of numbers

// A canvas of w x h places of `colour`: (x, y) -> [r, g, b] or nothing, each enlarged.
function paint(canvas, w, h, colour) {
  const small = create("canvas", { width: w, height: h }), context = small.getContext("2d");
  const pixels = context.createImageData(w, h);
  for (let at = 0; at < w * h; at++) {
    const found = colour(at % w, Math.floor(at / w));
    if (found) pixels.data.set([...found, 255], 4 * at);
  }
  context.putImageData(pixels, 0, 0);
  const each = Math.max(Math.floor(640 / w), 1), large = canvas.getContext("2d");
  [canvas.width, canvas.height] = [w * each, h * each];
  large.imageSmoothingEnabled = false;
  large.drawImage(small, 0, 0, canvas.width, canvas.height);
}

// The channels beside each other, 64 at the most; numbers alone in rows.
function tiles(canvas, { shape: [, channels, h = 1, w = 1], data }) {
  const most = data.reduce((a, b) => Math.max(a, Math.abs(b)), 1e-30);
  const zero = dark.matches ? [40, 44, 51] : [241, 243, 246];
  const ends = dark.matches ? [[127, 176, 230], [255, 176, 64]] : [[44, 95, 158], [214, 112, 0]];
  const gap = h * w > 1 ? 1 : 0, count = Math.min(channels, h * w > 1 ? 64 : 4096);
  const wide = Math.min(Math.max(Math.round(Math.sqrt((2 * count * h) / w)), 1), count);
  const across = count * h * w <= 32 ? Math.max(count, 16) : wide;
  paint(canvas, across * (w + gap) - gap, Math.ceil(count / across) * (h + gap) - gap, (x, y) => {
    const c = Math.floor(y / (h + gap)) * across + Math.floor(x / (w + gap));
    const [r, s] = [y % (h + gap), x % (w + gap)];
    if (r === h || s === w || c >= count) return null;
    const v = data[(c * h + r) * w + s] / most, end = ends[v < 0 ? 1 : 0];
    return zero.map((from, i) => from + (end[i] - from) * Math.abs(v));
  });
}

function showLayer(at, layers, tensor) {
  const shape = tensor.shape.slice(1), more = shape[1] && shape[0] > 64 ? ", the first 64" : "";
  const made = () => create("figure", {}, create("canvas", {}), create("figcaption", {}));
  const figure = $("maps").children[at] || $("maps").appendChild(made());
  tiles(figure.firstChild, tensor);
  figure.lastChild.textContent = `${layers.join(", ")}: ${shape.join(" × ")}${more}`;
  $("layers").hidden = false;
}

// ---------------------------------------------------------------- asking

// read(): the numbers of the input in the order C, H, W; body(), of this type: what servers are asked.
async function ask(read, body, type) {
  const mine = ++asked;
  if (SERVER) {
    const values = await served(await body(), type);
    return mine === asked && show(values);
  }
  const raw = read(), arrays = await weights;
  if (mine !== asked) return;
  $("note").textContent = "";
  if (model.picture) {
    const [channels, h, w] = model.input, area = h * w;
    const at = (c, i) => raw[Math.min(c, channels - 1) * area + i];
    paint($("seen").firstChild, w, h, (x, y) => [0, 1, 2].map((c) => at(c, y * w + x)));
    $("seen").hidden = false;
  }
  const work = run(model, arrays, raw);
  let spent = 0, seen = performance.now(), shown = 0, answer, last;
  for (;;) {
    const begin = performance.now(), { value, done } = work.next();
    spent += performance.now() - begin;
    if (done) break;
    const [layers, tensor, ends] = value;
    answer = tensor;
    if (ends && tensor.data !== last) showLayer(shown++, layers, tensor);
    if (ends) last = tensor.data;
    if (performance.now() - seen < 40) continue;
    await new Promise(requestAnimationFrame);
    if (mine !== asked) return;
    seen = performance.now();
  }
  show([...answer.data]);
  $("time").textContent = `The network took ${spent.toPrecision(2)} ms in this browser.`;
}

// The numbers that `dnnstack serve` answers, in the order of the classes.
async function served(body, type) {
  const reply = await fetch(`${SERVER}?top=${model.classes.length}`, {
    method: "POST", headers: { "Content-Type": type }, body });
  const found = [await reply.json()].flat()[0];
  if (!reply.ok) throw new Error(found.error);
  $("note").textContent = found.doubt ? `Not sure: ${found.doubt}.` : "";
  const top = found.top || found.answers, value = (each) => each.probability;
  const of = (name) => (top ? value(top.find((e) => e.label === name)) : found.numbers[name]);
  return model.classes.map(of);
}

const attempt = (work) => {
  repeat = () => work().catch((error) => blank(error.message));
  return repeat();
};

function prepared(pixels) {
  const [channels, h, w] = model.input, { digits, whole } = model.picture;
  const input = (each) => (digits ? digit(each) : fitted(each, w, h, whole));
  return planes(pixels, channels).flatMap((each) => [...input(each).data]);
}

async function askFile(file) {
  const how = { imageOrientation: "from-image", colorSpaceConversion: "none" };
  const bitmap = await createImageBitmap(file, how).catch(() => {
    throw new Error(`${file.name}: is no picture that this browser reads.`);
  });
  const { width, height } = bitmap, share = Math.min(pad.width / width, pad.height / height);
  if (width * height > 64e6) throw new Error(`${file.name}: has more than 64 million pixels.`);
  const context = create("canvas", { width, height }).getContext("2d");
  context.fillStyle = "white";
  context.fillRect(0, 0, width, height);
  context.drawImage(bitmap, 0, 0);
  clear();
  pad.given = true;
  const [left, top] = [(pad.width - width * share) / 2, (pad.height - height * share) / 2];
  pen.drawImage(context.canvas, left, top, width * share, height * share);
  return ask(() => prepared(context.getImageData(0, 0, width, height)), () => file, file.type);
}

// ---------------------------------------------------------------- drawing

function clear() {
  blank();
  pad.given = false;
  pen.fillStyle = "white";
  pen.fillRect(0, 0, pad.width, pad.height);
}

function draws() {
  let from = null, waiting = false;
  const place = (event) => {
    const box = pad.getBoundingClientRect(), scale = pad.width / box.width;
    return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
  };
  const line = (event) => {
    for (const each of event.getCoalescedEvents?.() || []) stroke(each);
    stroke(event);
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      const read = () => prepared(pen.getImageData(0, 0, pad.width, pad.height));
      const png = () => new Promise((done) => pad.toBlob(done));
      attempt(() => ask(read, png, "image/png"));
    });
  };
  const stroke = (event) => {
    pen.beginPath();
    pen.moveTo(...from);
    pen.lineTo(...(from = place(event)));
    pen.stroke();
  };
  Object.assign(pen, { lineWidth: 20, lineCap: "round", lineJoin: "round", strokeStyle: "black" });
  pad.classList.add("draws");
  pad.onpointerdown = (event) => {
    if (pad.given) clear();
    pad.setPointerCapture(event.pointerId);
    from = place(event);
    line(event);
  };
  pad.onpointermove = (event) => from && line(event);
  pad.onpointerup = pad.onpointercancel = () => (from = null);
}

// ---------------------------------------------------------------- numbers

function numbers() {
  const count = size(model.input), own = $("numbers");
  const found = own.value.split(/[\s,;]+/).filter(Boolean).map(Number);
  if (found.length === count && found.every(Number.isFinite)) return found;
  const good = found.filter(Number.isFinite).length;
  throw new Error(`${count} numbers are needed; here are ${good}.`);
}

// ---------------------------------------------------------------- start

const digits = Boolean(model.picture?.digits);
$("asked").textContent = digits ? "Draw a digit" : model.picture ? "Give a picture" : "Fill in";
$("about").textContent = `${model.input.join(" × ")} → ${model.classes.length} ${isOpen ? "answers" : "classes"}`;
$("foot").textContent = [
  `Written by dnnstack from step ${model.about.step} of a training on ${model.about.data}.`,
  SERVER ? "" : "All is computed in this page; nothing leaves it.",
  model.about.checked ? `Checked: ${model.about.checked}.` : "",
].join(" ");
blank();
if (model.picture) {
  $("picture").hidden = false;
  $("photo").hidden = digits && !SERVER;
  $("paper").hidden = !digits || Boolean(SERVER);
  const take = (files) => files[0] && attempt(() => askFile(files[0]));
  document.querySelectorAll("[type=file]").forEach((own) => (own.onchange = () => take(own.files)));
  document.onpaste = (event) => take(event.clipboardData.files);
  document.ondragleave = () => document.body.classList.remove("dropping");
  document.ondragover = (event) => {
    event.preventDefault();
    document.body.classList.add("dropping");
  };
  document.ondrop = (event) => {
    event.preventDefault();
    document.ondragleave();
    take(event.dataTransfer.files);
  };
  $("clear").onclick = () => {
    repeat = () => {};
    clear();
  };
  clear();
  if (digits) draws();
} else {
  const body = () => JSON.stringify({ values: numbers() });
  $("form").hidden = false;
  $("numbers").oninput = () => attempt(() => ask(numbers, body, "application/json"));
}
dark.onchange = () => repeat();
