// The part of the layout in view: offset in layout units, and scale, both kept within bounds.

export interface Size {
  width: number;
  height: number;
}

const MIN_SCALE = 0.2;
const LEAST = 0.002; // lower bound of the scale at which the whole graph is in view
const MAX_SCALE = 2;
const START_SCALE = 0.85;
export const EDGE = 12;
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
    // A long graph is whole only at a smaller scale.
    const least = Math.min(MIN_SCALE, this.wholeScale);
    const scale = Math.min(MAX_SCALE, Math.max(least, this.scale * factor));
    // The point of the layout under (atX, atY) stays there: x + atX / scale is constant.
    this.x += atX / this.scale - atX / scale;
    this.y += atY / this.scale - atY / scale;
    this.scale = scale;
    this.clamp();
  }

  /** Show the whole graph if that is readable, else its top at full width, at a scale of `START_SCALE` or more. */
  start(): void {
    const whole = this.wholeScale;
    const wide = this.size.width / (this.content.width + 2 * SIDE);
    this.show(whole >= START_SCALE ? whole : Math.min(1, Math.max(START_SCALE, wide)));
  }

  /** Show the whole graph. */
  fit(): void {
    this.show(this.wholeScale);
  }

  /** Whether the scale is that of the whole graph, and too small to read. */
  get isWhole(): boolean {
    return this.scale < START_SCALE && Math.abs(this.scale / this.wholeScale - 1) < 0.01;
  }

  /** The scale at which the whole graph is in view, 1 at most. */
  private get wholeScale(): number {
    const wide = this.size.width / (this.content.width + 2 * SIDE);
    const tall = this.size.height / (this.content.height + 2 * EDGE);
    return Math.min(1, Math.max(LEAST, Math.min(wide, tall)));
  }

  private show(scale: number): void {
    this.scale = scale;
    this.x = -SIDE;
    this.y = -EDGE;
    this.clamp();
  }

  /** Scroll as little as needed to show a rectangle with a margin; centre it vertically if it is far away. */
  reveal(x: number, y: number, width: number, height: number): void {
    const box = this.box;
    // In a low view the margins shrink, so that the rectangle fits between them.
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
    this.x = inside(this.x, this.content.width, this.size.width / this.scale, SIDE);
    this.y = inside(this.y, this.content.height, this.size.height / this.scale, EDGE);
  }
}

/** Return an offset that keeps the content in view; content smaller than the view is centred. */
function inside(offset: number, content: number, view: number, edge: number): number {
  if (content + 2 * edge <= view) return (content - view) / 2;
  return Math.min(content - view + edge, Math.max(-edge, offset));
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}
