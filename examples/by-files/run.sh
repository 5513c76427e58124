#!/bin/sh
# A whole study by files alone: some sites, a coordinator, and a folder that stands for the mail.
#
#   examples/by-files/run.sh FOLDER [OPTION...]
#
# works in FOLDER, which must not exist; options are those of fedsplit study new. SITES names other
# sites than all six, as in SITES="site1 site2 site3". docs/by-files.md explains every command.
set -eu
rows=$(cd "$(dirname "$0")/../randhie" && pwd)
mkdir "$1" && cd "$1" && shift
sites=${SITES:-site1 site2 site3 site4 site5 site6}

# What a site does. Each stands for a machine of its own, with its own ledger of what was disclosed.
at() {
    command=$1 site=$2 && shift 2
    XDG_STATE_HOME="$PWD/$site" fedsplit site "$command" "$site" "$@"
}

# Once: every site makes its own key, and the coordinator signs it.
fedsplit keys init federation --host localhost
for site in $sites; do
    fedsplit keys request "$site"
    fedsplit keys sign federation "$site/$site.csr"
    at init "$site" "federation/$site.pem" --data "$rows/$site.csv"
done

# The coordinator writes a study, and tells its hash to the sites by telephone.
fedsplit study new federation/visits.toml --from "$rows/site1.csv" --family poisson "$@" \
    --formula "mdvis ~ logc + idp + linc + xage + female + physlm + disea + C(health)"
hash=$(fedsplit study status federation/visits.toml | sed -n 's/^study //p')

# The first question is the study itself. Nothing is answered until the owner of a site approves it.
fedsplit study ask federation/visits.toml --post post || true
for site in $sites; do
    at answer "$site" "post/$site" || at approve "$site" "$hash"
done

# Questions and answers, which travel in the folder post, until there are no more questions.
until fedsplit study ask federation/visits.toml --post post; do
    for site in $sites; do
        at answer "$site" "post/$site"
    done
done
fedsplit study combine federation/visits.toml --out result

# The last of them is the result, which each site writes into its record.
for site in $sites; do
    at answer "$site" "post/$site"
done
