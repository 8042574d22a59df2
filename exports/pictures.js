// What `predict` does to a picture. A plane: {w, h, data}, of bytes (Uint8ClampedArray) or floats.

// Filters: how far they reach, and the weight at a distance.
const BOX = [0.5, () => 1];
const inner = (x) => (1.5 * x - 2.5) * x * x + 1, outer = (x) => (((x - 5) * x + 8) * x - 4) * -0.5;
const BICUBIC = [2, (x) => (x < 1 ? inner(x) : outer(x))];

// Pillow's weights: for each of `count` outputs its first input, and the share of each from there.
function shares(inputs, begin, end, count, [support, filter]) {
  const scale = Math.fround(Math.fround(end) - Math.fround(begin)) / count;
  const wider = Math.max(scale, 1);
  return Array.from({ length: count }, (_, o) => {
    const centre = Math.fround(begin) + (o + 0.5) * scale;
    const first = Math.max(Math.trunc(centre - support * wider + 0.5), 0);
    const last = Math.min(Math.trunc(centre + support * wider + 0.5), inputs);
    const values = Array.from({ length: last - first }, (_, i) => {
      const x = (i + first - centre + 0.5) * (1 / wider);
      return x > -support && x <= support ? filter(Math.abs(x)) : 0;
    });
    const sum = values.reduce((a, b) => a + b, 0);
    return [first, values.map((v) => (sum ? v / sum : v))];
  });
}

// One pass of Pillow's resize, in rows or `upright` in columns: bytes by integers of 22 bits.
function pass({ w, h, data }, kernels, upright) {
  const count = kernels.length, bytes = data instanceof Uint8ClampedArray;
  const found = upright ? { w, h: count } : { w: count, h };
  const [lines, line, step, toLine, toStep] = upright ? [w, 1, w, 1, w] : [h, w, 1, count, 1];
  found.data = new data.constructor(lines * count);
  kernels.forEach(([first, values], o) => {
    const given = bytes ? values.map((v) => Math.trunc(v * 2 ** 22 + Math.sign(v) / 2)) : values;
    for (let n = 0; n < lines; n++) {
      let sum = bytes ? 2 ** 21 : 0;
      for (let i = 0, at = n * line + first * step; i < given.length; i++, at += step) {
        sum += data[at] * given[i];
      }
      found.data[n * toLine + o * toStep] = bytes ? sum >> 22 : sum;
    }
  });
  return found;
}

// Pillow's resize of the part [left, top, right, bottom], whose order of passes is that of 13.
function resized(plane, w, h, filter, [left, top, right, bottom] = [0, 0, plane.w, plane.h]) {
  const rows = [shares(plane.h, top, bottom, h, filter), true];
  const columns = [shares(plane.w, left, right, w, filter), false];
  const less = plane.h - h, uprightFirst = less > Math.max(0, 2 * (plane.w - w));
  const [one, other] = uprightFirst ? [rows, columns] : [columns, rows];
  return pass(pass(plane, ...one), ...other);
}

// The largest central part that fits, or all of it, as `ImageOps.fit` scales it.
function fitted(plane, w, h, whole) {
  if (plane.w === w && plane.h === h) return plane;
  if (whole || plane.w * h === plane.h * w) return resized(plane, w, h, BICUBIC);
  const wide = plane.w / plane.h >= w / h;
  const across = wide ? (w / h) * plane.h : plane.w, tall = wide ? plane.h : plane.w / (w / h);
  const left = (plane.w - across) * 0.5, top = (plane.h - tall) * 0.5;
  return resized(plane, w, h, BICUBIC, [left, top, left + across, top + tall]);
}

// The planes of canvas pixels: grey by ITU-R 601-2 in integers, or red, green and blue.
function planes({ width: w, height: h, data }, channels) {
  const grey = (i) => (data[i] * 19595 + data[i + 1] * 38470 + data[i + 2] * 7471 + 0x8000) >> 16;
  return Array.from({ length: channels }, (_, c) => {
    const plane = { w, h, data: new Uint8ClampedArray(w * h) };
    for (let i = 0; i < w * h; i++) plane.data[i] = channels === 1 ? grey(4 * i) : data[4 * i + c];
    return plane;
  });
}

function median(values) {
  const sorted = Float64Array.from(values).sort(), half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

function border({ w, h, data }) {
  const sides = [...data.subarray(0, w), ...data.subarray((h - 1) * w)];
  for (let y = 0; y < h; y++) sides.push(data[y * w], data[y * w + w - 1]);
  return sides;
}

// At each pixel `fold` over those within `radius`, from its own value on.
function around({ w, h, data }, radius, fold) {
  const found = data.slice(), reach = Math.floor(radius);
  for (let y = -reach; y <= reach; y++) {
    for (let x = -reach; x <= reach; x++) {
      if ((x || y) && x * x + y * y <= radius * radius) {
        for (let r = Math.max(0, -y); r < Math.min(h, h - y); r++) {
          for (let c = Math.max(0, -x); c < Math.min(w, w - x); c++) {
            found[r * w + c] = fold(found[r * w + c], data[(r + y) * w + c + x]);
          }
        }
      }
    }
  }
  return { w, h, data: found };
}

const largest = (data) => data.reduce((a, b) => Math.max(a, b), 0);
const planeOf = (from, f) => ({ w: from.w, h: from.h, data: Float32Array.from(from.data, f) });

// The ink of a page of one brightness: 0 on paper, 1 in the core of a stroke.
function inkOf(page) {
  const sides = border(page), paper = median(sides);
  const signed = planeOf(page, (v) => paper - v);
  const weight = (sign) => signed.data.reduce((sum, v) => sum + Math.max(sign * v - 8, 0), 0);
  const dark = weight(1) >= weight(-1), scale = dark ? 255 / Math.max(paper, 16) : -1;
  const level = planeOf(signed, (v) => v * scale);
  const means = around(level, 1.5, (a, b) => a + b);
  const smooth = Math.min(page.w, page.h) > 40 ? planeOf(means, (v) => v / 9) : level;
  const contrast = largest(smooth.data);
  if (contrast < 16) throw new Error("No digit is found: the picture is blank or nearly so.");
  const between = level.data.filter((v) => Math.abs(v) > 12 && Math.abs(v) < contrast / 4);
  const far = sides.filter((v) => Math.abs(v - paper) > 12);
  if (between.length > level.data.length / 10 || far.length > sides.length / 5) {
    throw new Error("The background is not of one brightness. For photographed pages there are " +
      "dnnstack predict and dnnstack serve, which find the paper first. Here, draw the digit.");
  }
  const strong = level.data.filter((v, i) => v > contrast / 2 && smooth.data[i] > contrast / 2);
  const core = strong.length ? median(strong) : contrast;
  return planeOf(level, (v) => Math.min(Math.max(v / core, 0), 1));
}

// The regions of pixels that touch: the number of each pixel's, 0 outside, and the ink of each.
function regions({ w, h, data }) {
  const label = new Int32Array(w * h), mass = [0];
  data.forEach((level, start) => {
    if (level < 0.25 || label[start]) return;
    const waiting = [start], own = mass.push(0) - 1;
    label[start] = own;
    while (waiting.length) {
      const at = waiting.pop(), x = at % w, y = (at - x) / w;
      mass[own] += data[at];
      for (let r = Math.max(y - 1, 0); r <= Math.min(y + 1, h - 1); r++) {
        for (let c = Math.max(x - 1, 0); c <= Math.min(x + 1, w - 1); c++) {
          if (data[r * w + c] < 0.25 || label[r * w + c]) continue;
          label[r * w + c] = own;
          waiting.push(r * w + c);
        }
      }
    }
  });
  return [label, mass];
}

// The digit alone: without specks, and without what the border cuts off if there is more inside.
function cropped(ink) {
  const { w, h } = ink, [label, mass] = regions(ink);
  const cut = new Set(border({ w, h, data: label }));
  const inner = mass.map((v, own) => (cut.has(own) ? 0 : v));
  const kept = largest(inner) >= 0.1 * largest(mass) ? inner : mass, least = 0.04 * largest(kept);
  const mask = planeOf({ w, h, data: label }, (own) => (own && kept[own] >= least ? 1 : 0));
  let [left, top, right, bottom] = [w, h, 0, 0];
  mask.data.forEach((inside, at) => {
    if (!inside) return;
    const x = at % w, y = (at - x) / w;
    [left, right] = [Math.min(left, x), Math.max(right, x + 1)];
    [top, bottom] = [Math.min(top, y), Math.max(bottom, y + 1)];
  });
  const soft = around(mask, 1.5, Math.max);
  const size = { w: right - left, h: bottom - top };
  return planeOf({ ...size, data: { length: size.w * size.h } }, (_, i) => {
    const at = (top + Math.floor(i / size.w)) * w + left + (i % size.w);
    return soft.data[at] ? ink.data[at] : 0;
  });
}

function padded(inner, top, left, w, h) {
  const outer = { w, h, data: new Float32Array(w * h) };
  for (let y = 0; y < inner.h; y++) {
    outer.data.set(inner.data.subarray(y * inner.w, (y + 1) * inner.w), (top + y) * w + left);
  }
  return outer;
}

function scaledTo(ink, longest) {
  const scale = longest / Math.max(ink.w, ink.h), side = (v) => Math.max(rint(v * scale), 1);
  const found = resized(ink, side(ink.w), side(ink.h), BICUBIC);
  return planeOf(found, (v) => Math.min(Math.max(v, 0), 1));
}

// Twice the area of the strokes over the length of their outline.
function strokeWidth(fine) {
  const mask = planeOf(fine, (v) => (v >= 0.5 ? 1 : 0));
  const { w, data } = padded(mask, 1, 1, fine.w + 2, fine.h + 2);
  let area = 0, sides = 0;
  data.forEach((v, i) => {
    area += v;
    sides += (i >= w && v !== data[i - w]) + (i % w > 0 && v !== data[i - 1]);
  });
  return (2 * area) / Math.max((sides * Math.PI) / 4, 1);
}

// A digit on a page as MNIST has it: light on black, in a box of 20, centred by mass in 28 x 28.
function digit(grey) {
  if (grey.w === 28 && grey.h === 28 && median(border(grey)) < 64) return grey;
  const share = 800 / Math.max(grey.w, grey.h), side = (v) => Math.max(rint(v * share), 1);
  let ink = cropped(inkOf(share < 1 ? resized(grey, side(grey.w), side(grey.h), BOX) : grey));
  const fine = scaledTo(ink, 100), radius = (2 - strokeWidth(fine) / 5) * 2.5;
  if (radius > 0) {
    const edge = Math.floor(radius) + 1;
    ink = around(padded(fine, edge, edge, fine.w + 2 * edge, fine.h + 2 * edge), radius, Math.max);
  }
  const small = scaledTo(ink, 20), most = Math.max(largest(small.data), 1e-6);
  const pixels = planeOf(small, (v) => rint(v * (255 / most)));
  const box = padded(pixels, (20 - small.h) >> 1, (20 - small.w) >> 1, 20, 20);
  let mass = 0, down = 0, along = 0;
  box.data.forEach((v, i) => {
    mass += v;
    down += v * Math.floor(i / 20);
    along += v * (i % 20);
  });
  const offset = (moment) =>
    Math.min(Math.max(14 - Math.floor((2 * moment + mass) / (2 * mass)), 0), 8);
  return padded(box, offset(down), offset(along), 28, 28);
}
