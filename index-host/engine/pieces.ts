/** Work in short pieces: the process runs other tenants' pieces between them. */
export type Pieces<T> = Generator<void, T, void>;
