/** Whose pages are counted together with those of others: an invocation and its children, of which only the first was admitted. */
export interface FamilyName {
  readonly name: string;
  /** Most distinct pages of all its members together, those that two of them hold counted twice. */
  readonly maxPages: number;
}

/** What the members of one family hold on one model. */
export interface Family extends FamilyName {
  held: number;
  members: number;
}

/** The families that have members on one model. */
export class Families {
  readonly #families = new Map<string, Family>();

  get size(): number {
    return this.#families.size;
  }

  /** The family of that name, with a member more. */
  join({ name, maxPages }: FamilyName): Family {
    let family = this.#families.get(name);
    if (!family) {
      family = { name, maxPages, held: 0, members: 0 };
      this.#families.set(name, family);
    }
    family.members++;
    return family;
  }

  /** A member that held `pages` is none any more. */
  leave(family: Family, pages: number): void {
    family.held -= pages;
    if (--family.members === 0) this.#families.delete(family.name);
  }
}
