// What the commands need of the view around the pictures.
export interface Surroundings {
  selectionChanged(): void;
  focusSearch(): void;
  setCount(text: string): void;
  toggleHelp(): void;
  /** Go to another difference of the list. */
  stepDifference(direction: 1 | -1): void;
  /** Close help or an error; says whether one was open. */
  closePanel(): boolean;
  /** Let the next drag draw a rectangle, or move the graph again. */
  pick(on: boolean): void;
}
