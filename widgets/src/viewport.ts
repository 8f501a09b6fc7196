// Which part of the picture is shown: offset and scale, kept inside sensible bounds.

export interface Size {
  width: number;
  height: number;
}

const MIN_SCALE = 0.2;
const MAX_SCALE = 2;
const START_SCALE = 0.85;
const EDGE = 40;
const SIDE = 20;

export class Viewport {
  x = 0;
  y = 0;
  scale = 1;
  content: Size = { width: 0, height: 0 };
  size: Size = { width: 600, height: 400 };

  get box() {
    return {
      left: this.x,
      top: this.y,
      right: this.x + this.size.width / this.scale,
      bottom: this.y + this.size.height / this.scale,
    };
  }

  get transform(): string {
    return `translate(${round(-this.x * this.scale)} ${round(-this.y * this.scale)}) scale(${this.scale})`;
  }

  moveBy(dx: number, dy: number): void {
    this.x += dx / this.scale;
    this.y += dy / this.scale;
    this.clamp();
  }

  zoomBy(factor: number, atX = this.size.width / 2, atY = this.size.height / 2): void {
    const scale = Math.min(MAX_SCALE, Math.max(MIN_SCALE, this.scale * factor));
    this.x += atX / this.scale - atX / scale;
    this.y += atY / this.scale - atY / scale;
    this.scale = scale;
    this.clamp();
  }

  /** The first view: as `fit`, but never too small to read. */
  start(): void {
    this.fit();
    if (this.scale >= START_SCALE) return;
    this.scale = START_SCALE;
    this.x = -SIDE;
    this.y = -EDGE;
    this.clamp();
  }

  /** Show the whole width; of a tall graph the top, unless all of it fits at a legible scale. */
  fit(): void {
    const wide = (this.size.width - 2 * SIDE) / Math.max(1, this.content.width);
    const tall = (this.size.height - 2 * EDGE) / Math.max(1, this.content.height);
    const whole = Math.min(wide, tall);
    this.scale = Math.min(1, Math.max(MIN_SCALE, whole >= 0.55 ? whole : wide));
    this.x = 0;
    this.y = -EDGE;
    this.clamp();
  }

  /** Move as little as needed to show a rectangle with some room around it; far away, put it in the middle. */
  reveal(x: number, y: number, width: number, height: number): void {
    const box = this.box;
    const room = Math.min(70, (box.bottom - box.top - height) / 2 - 1);
    const far = y > box.bottom + 400 || y + height < box.top - 400;
    if (far) this.y = y + height / 2 - (box.bottom - box.top) / 2;
    else if (y < box.top + room) this.y = y - room;
    else if (y + height > box.bottom - room) this.y = y + height + room - (box.bottom - box.top);
    if (x < box.left + 10) this.x = x - 20;
    else if (x + width > box.right - 10) this.x = x + width + 20 - (box.right - box.left);
    this.clamp();
  }

  clamp(): void {
    [this.x] = inside(this.x, this.content.width, this.size.width / this.scale, SIDE);
    [this.y] = inside(this.y, this.content.height, this.size.height / this.scale, EDGE);
  }
}

/** Keep an offset so that content stays in view; what is smaller than the view is centred. */
function inside(offset: number, content: number, view: number, edge: number): [number] {
  if (content + 2 * edge <= view) return [(content - view) / 2];
  return [Math.min(content - view + edge, Math.max(-edge, offset))];
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}
