import { isAdmin } from "../session/session";
import { HealthSection } from "./HealthSection";
import { TokensSection } from "./TokensSection";
import { UsersSection } from "./UsersSection";

/** The master itself: whether it keeps up, what fills its disk, who costs it most; for admins who has a key to it. */
export function MasterPage() {
  return (
    <>
      <h1>The master</h1>
      <HealthSection />
      <UsersSection />
      {isAdmin.value && <TokensSection />}
    </>
  );
}
