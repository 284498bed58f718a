/* A list of which only the rows in sight are elements: rows of one height, so that a row's number is its place. */

class List {
  /** `box` scrolls, `body` is as high as all rows; `fill(row, index)` fills the element of a row. */
  constructor(box, body, fill) {
    Object.assign(this, { box, body, fill, count: 0, active: -1, elements: new Map() });
    box.addEventListener("scroll", () => this.later());
    new ResizeObserver(() => this.resized()).observe(box);
  }

  get height() {
    return parseFloat(getComputedStyle(this.box).getPropertyValue("--row-height"));
  }

  /** Draw what a larger box shows; rows of another height are drawn anew. */
  resized() {
    if (this.drawnHeight !== this.height) this.clear();
    this.draw();
  }

  /** Show this many rows, all new. */
  show(count) {
    this.count = count;
    this.active = Math.min(this.active, count - 1);
    this.clear();
    this.draw();
  }

  /** Forget what is drawn, and draw it anew at the next occasion. */
  clear() {
    for (const element of this.elements.values()) element.remove();
    this.elements.clear();
  }

  later() {
    this.waiting ??= requestAnimationFrame(() => {
      this.waiting = null;
      this.draw();
    });
  }

  /** Return the first and last row in sight, with some beside them. */
  get range() {
    const top = Math.floor(this.box.scrollTop / this.height);
    const many = Math.ceil(this.box.clientHeight / this.height);
    return [Math.max(0, top - 6), Math.min(this.count - 1, top + many + 6)];
  }

  draw() {
    this.drawnHeight = this.height;
    this.body.style.height = `${this.count * this.height}px`;
    const [first, last] = this.range;
    for (const [index, element] of this.elements) {
      if (index < first || index > last) {
        element.remove();
        this.elements.delete(index);
      }
    }
    const fresh = [];
    for (let index = first; index <= last; index += 1) {
      if (this.elements.has(index)) continue;
      const element = make("div", { role: "row", class: "row", id: `row-${index}`, "aria-rowindex": index + 2 });
      element.style.top = `${index * this.height}px`;
      this.elements.set(index, element);
      this.body.append(element);
      fresh.push(index);
    }
    for (const index of fresh) this.fill(this.elements.get(index), index);
    this.mark();
    if (fresh.length) this.drawn?.(fresh);
  }

  mark() {
    for (const [index, element] of this.elements) {
      element.setAttribute("aria-selected", String(index === this.active));
    }
    if (this.elements.has(this.active)) this.box.setAttribute("aria-activedescendant", `row-${this.active}`);
    else this.box.removeAttribute("aria-activedescendant");
  }

  /** Make a row the active one, in sight. */
  go(index) {
    if (!this.count) return;
    this.active = Math.max(0, Math.min(this.count - 1, index));
    const head = this.body.offsetTop;
    const [top, bottom] = [this.active * this.height, (this.active + 1) * this.height + head];
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    else if (bottom > this.box.scrollTop + this.box.clientHeight) this.box.scrollTop = bottom - this.box.clientHeight;
    this.draw();
  }

  get page() {
    return Math.max(1, Math.floor(this.box.clientHeight / this.height) - 2);
  }
}
