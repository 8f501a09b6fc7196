// Draws a unit: a card with a stripe (colour and letter), class, name, shape and badges.
import { hasBlocks } from "./blocks";
import { sharedText, writeTexts } from "./card_texts";
import { paintOf } from "./colors";
import { plain, svg } from "./dom";
import { NODE_HEIGHT, NODE_WIDTH, type Placed } from "./placed";
import type { Store } from "./store";
import type { Site } from "./traits";

export const STRIPE = 20;
const BADGE = 18;
const BADGE_GAP = 3;
const MAX_INPUT_BADGES = 4;
/** Path of the lines across the stripe. */
const HATCH = [11, 17, 23].map((y) => `M2 ${y}L${STRIPE - 2} ${y - 10}`).join("");

export interface Badge {
  site: Site;
  /** The index of the input; null for all. */
  index: number | null;
  text: string;
}

/**
 * Return a unit's badges: inputs (one each for 2 to `MAX_INPUT_BADGES`, else one for all), weights, output. Inputs that
 * cannot be quantized, such as masks, have none.
 */
export function badgesOf(store: Store, unit: Pick<Placed, "nodes" | "block">): Badge[] {
  if (!store.hasBadges) return [];
  const inputs = unit.block === null ? store.graph.realInputs(unit.nodes[0]) : [];
  const several = inputs.length > 1 && inputs.length <= MAX_INPUT_BADGES;
  const badges: Badge[] = several
    ? inputs.map((index) => ({ site: "input", index, text: `I${index}` }))
    : [{ site: "input", index: null, text: `I${widthOf(store, unit, "input")}` }];
  return [
    ...badges,
    { site: "weight", index: null, text: `W${widthOf(store, unit, "weight")}` },
    { site: "output", index: null, text: `O${widthOf(store, unit, "output")}` },
  ];
}

/** Return the text after a badge's letter: bits other than 8, `8b` or `4b` for weights in blocks, "…" for several. */
function widthOf(store: Store, unit: Pick<Placed, "nodes" | "block">, site: Site): string {
  const nodes = store.badgeNodes(unit, site);
  const bits = store.bits(nodes, site);
  if (bits === null) return "…";
  return site === "weight" && hasBlocks(store, nodes) ? `${bits}b` : bits === 8 ? "" : String(bits);
}

export function drawUnit(store: Store, unit: Placed, id: string): SVGGElement {
  const group = svg("g", {
    id,
    class: "qdqw-unit",
    role: "treeitem",
    "data-unit": unit.key,
    transform: `translate(${unit.x} ${unit.y})`,
  });
  const isBlock = unit.block !== null;
  const { side } = store;
  if (side !== null) {
    group.classList.toggle(
      "faded",
      unit.nodes.every((node) => side.faded.has(node)),
    );
    group.classList.toggle(
      "differs",
      unit.nodes.some((node) => side.differs.has(node)),
    );
  }
  if (isBlock) {
    group.classList.add("block");
    group.append(svg("rect", { class: "qdqw-under", x: 4, y: 4, width: NODE_WIDTH, height: NODE_HEIGHT, rx: 6 }));
  }
  group.append(
    svg("rect", { class: "qdqw-card", width: NODE_WIDTH, height: NODE_HEIGHT, rx: 6 }),
    svg("path", {
      class: "qdqw-stripe",
      d: `M6 .5h${STRIPE - 6}v${NODE_HEIGHT - 1}h-${STRIPE - 6}a5.5 5.5 0 0 1 -5.5 -5.5v-${NODE_HEIGHT - 12}a5.5 5.5 0 0 1 5.5 -5.5z`,
    }),
    svg("path", { class: "qdqw-hatch", d: HATCH }),
    svg("text", { class: "letter", x: STRIPE / 2 + 0.5, y: NODE_HEIGHT / 2 }),
    svg("rect", { class: "qdqw-ring", x: -3, y: -3, width: NODE_WIDTH + 6, height: NODE_HEIGHT + 6, rx: 8 }),
  );
  const left = STRIPE + (isBlock ? 24 : 7);
  group.append(
    svg("text", { class: "title", x: left, y: NODE_HEIGHT / 2 }),
    svg("text", { class: "name", y: NODE_HEIGHT / 2 }),
    svg("text", { class: "shape", y: NODE_HEIGHT / 2 }),
    svg("g", { class: "qdqw-badges" }),
    svg("circle", { class: "qdqw-mark", cx: NODE_WIDTH - 1, cy: 1, r: 4.5 }),
    svg("circle", { class: "qdqw-changed", cx: NODE_WIDTH + 9, cy: NODE_HEIGHT / 2, r: 4 }),
  );
  const bar = unit.nodes.reduce((longest, node) => Math.max(longest, side?.look.bars?.[node] ?? 0), 0);
  if (bar > 0)
    group.append(
      svg("rect", {
        class: "qdqw-time",
        x: STRIPE + 6,
        y: NODE_HEIGHT - 3,
        width: bar * (NODE_WIDTH - STRIPE - 14),
        height: 2.5,
      }),
    );
  if (side !== null && unit.nodes.some((node) => side.differs.has(node)))
    group.append(
      svg("g", { class: "qdqw-unequal", transform: "translate(2 3)" }, [
        svg("circle", { r: 7.5 }),
        svg("text", {}, ["≠"]),
      ]),
    );
  if (isBlock) {
    const opener = svg("g", { class: "qdqw-opener", "data-open": unit.block!.id }, [
      // Transparent: what can be clicked is larger than the chevron.
      svg("rect", { x: STRIPE, y: 0, width: 26, height: NODE_HEIGHT }),
      svg("path", { class: "qdqw-chevron", d: `M${STRIPE + 10} ${NODE_HEIGHT / 2 - 5}l5 5l-5 5` }),
    ]);
    group.append(opener);
  }
  updateUnit(store, unit, group);
  return group;
}

/** Draw the badges at the right end of the card; `data-left` keeps their left edge for the texts. */
function placeBadges(unitGroup: SVGGElement, badges: Badge[]): void {
  const group = unitGroup.querySelector(".qdqw-badges")!;
  const texts = badges.map((badge) => badge.text).join(" ");
  if (group.getAttribute("data-texts") === texts) return;
  group.setAttribute("data-texts", texts);
  group.replaceChildren();
  // By the number of characters, such as I, I0 and W16.
  const sizes = badges.map((badge) => [BADGE, BADGE, 21, 27][Math.min(badge.text.length, 3)]);
  const width = sizes.reduce((sum, size) => sum + size + BADGE_GAP, 0);
  let x = NODE_WIDTH - 1 - width;
  group.setAttribute("data-left", String(x));
  badges.forEach((badge, k) => {
    const size = sizes[k];
    group.append(
      svg(
        "g",
        {
          class: `qdqw-badge ${badge.site}`,
          "data-badge": k,
          transform: `translate(${x} ${(NODE_HEIGHT - BADGE) / 2})`,
        },
        [
          svg("rect", { width: size, height: BADGE, rx: 3.5 }),
          svg("polygon", {
            points: `3,${BADGE - 1} 1,${BADGE - 3} 1,${BADGE - 3} ${size - 3},1 ${size - 1},3 ${size - 1},${BADGE - 3} ${size - 3},${BADGE - 1}`,
          }),
          svg("text", { x: size / 2, y: BADGE / 2 + 0.5 }, [badge.text]),
        ],
      ),
    );
    x += size + BADGE_GAP;
  });
}

/** Update colour, badges, texts and the ARIA label of a drawn unit. */
export function updateUnit(store: Store, unit: Placed, group: SVGGElement): void {
  const paint = paintOf(store, unit.nodes);
  const stripe = group.querySelector(".qdqw-stripe")!;
  stripe.setAttribute("class", `qdqw-stripe ${paint.kind}`);
  if (paint.fill) stripe.setAttribute("fill", paint.fill);
  else stripe.removeAttribute("fill");
  group.classList.toggle("hatched", paint.hatched === true);
  group.classList.toggle(
    "changed",
    unit.nodes.some((node) => store.step.changed.has(node)),
  );
  const letter = group.querySelector(".letter")!;
  letter.textContent = paint.letter;
  letter.setAttribute("class", paint.kind === "partial" ? "letter dark" : "letter");
  const badges = badgesOf(store, unit);
  placeBadges(group, badges);
  writeTexts(store, unit, group, paint.label);
  group.querySelectorAll(".qdqw-badge").forEach((element, k) => {
    const { site, index } = badges[k];
    element.setAttribute("class", `qdqw-badge ${site} ${store.coverage(store.badgeNodes(unit, site), site, index)}`);
  });
  group.setAttribute("aria-label", spokenLabel(store, unit));
}

const SPOKEN = { all: "quantized", some: "partly quantized", none: "float", impossible: "" } as const;

/** Return whether the ARIA label names the sites: kernels of a runtime have none. */
function showsSites({ side }: Store): boolean {
  return side === null || side.look.badges;
}

function spokenSide({ side }: Store, node: number): string[] {
  if (side === null) return [];
  return [...(side.look.cards?.[node] ? [side.look.cards[node]] : []), ...(side.differs.has(node) ? ["differs"] : [])];
}

export function spokenLabel(store: Store, unit: Pick<Placed, "nodes" | "block">): string {
  const { graph } = store;
  const parts =
    unit.block === null
      ? [
          `${graph.className(unit.nodes[0])} ${plain(graph.name(unit.nodes[0]))}`,
          `output ${graph.shape(unit.nodes[0])}`,
          ...(sharedText(store, unit.nodes[0]) ? ["shared weights"] : []),
          ...spokenSide(store, unit.nodes[0]),
        ]
      : [`block ${plain(unit.block.label)}`, graph.layers(unit.nodes)];
  for (const [site, word] of [
    ["input", "input"],
    ["weight", "weights"],
    ["output", "output"],
  ] as const) {
    const coverage = store.coverage(store.badgeNodes(unit, site), site);
    if (coverage === "impossible" || (site === "output" && coverage === "none") || !showsSites(store)) continue;
    const nodes = store.badgeNodes(unit, site);
    const bits = store.bits(nodes, site);
    const blocks = site === "weight" && hasBlocks(store, nodes) ? " in blocks" : "";
    parts.push(`${word} ${SPOKEN[coverage]}${bits === 8 || bits === null ? "" : ` to ${bits} bits`}${blocks}`);
  }
  return parts.join(", ");
}
