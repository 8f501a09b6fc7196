// What the commands need from the view that contains the pictures.
export interface Surroundings {
  selectionChanged(): void;
  focusSearch(): void;
  setCount(text: string): void;
  toggleHelp(): void;
  /** Go to the next or previous difference of the list. */
  stepDifference(direction: 1 | -1): void;
  /** End picking and close help, or else an error; return whether there was anything to end or close. */
  closePanel(): boolean;
  /** Switch the picking mode, in which the next drag selects by a rectangle. */
  pick(on: boolean): void;
}
