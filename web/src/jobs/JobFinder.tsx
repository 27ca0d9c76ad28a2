import { setWords, useWord } from "../router";
import { caller, maySubmit } from "../session/session";
import { Button } from "../ui/Button";
import { SearchField } from "../lists/SearchField";
import type { JobFilter } from "./jobs";

export function useJobFilter(): JobFilter {
  const [named] = useWord("named");
  const [user] = useWord("user");
  const [label] = useWord("label");
  return { named: named ?? undefined, user: user ?? undefined, label: label ?? undefined };
}

export function JobFinder() {
  const { user } = useJobFilter();
  const self = caller.value?.name;
  const isMine = user !== undefined && user === self;
  return (
    <div class="finder" role="search" aria-label="Jobs">
      <SearchField name="named" label="Find jobs by name" placeholder="Name of a job" pages="page" />
      <SearchField name="user" label="Only jobs of this user" placeholder="User" pages="page" />
      <SearchField name="label" label="Only jobs that need this label" placeholder="Label" pages="page" />
      {maySubmit.value && self && (
        <Button isPressed={isMine} onClick={() => setWords({ user: isMine ? null : self, page: null })}>
          Mine
        </Button>
      )}
    </div>
  );
}
