# Rscript make.R, in this folder: R 4 with haven and openxlsx.
set.seed(1)
n <- 60
people <- data.frame(
  y = round(rnorm(n, 10, 3), 2),
  age = sample(20:90, n, TRUE),
  dose = round(runif(n, 0, 5), 2),
  stage = factor(sample(c("I", "II", "III"), n, TRUE)),
  grade = factor(sample(c("low", "mid", "high"), n, TRUE), levels = c("low", "mid", "high")),
  visit = as.Date("2020-01-01") + sample(0:400, n, TRUE),
  seen = as.POSIXct("2021-05-06 12:00:00", tz = "UTC") + 21600 * sample(0:40, n, TRUE),
  smoker = sample(c(TRUE, FALSE), n, TRUE)
)
people$age[5] <- NA
people$dose[c(7, 8)] <- NA
people$stage[11] <- NA
people$visit[13] <- NA
people$smoker[17] <- NA
stored <- people
stored$seen <- format(people$seen, "%Y-%m-%d %H:%M:%S")
write.csv(stored, "write_csv.csv")
write.csv(stored, "plain.csv", row.names = FALSE)
write.csv2(stored, "write_csv2.csv")
write.table(stored, "write_table.txt")
write.table(stored, "write_table_tab.txt", sep = "\t")
saveRDS(people, "people.rds", version = 2)
saveRDS(haven::as_factor(tibble::as_tibble(people)), "tibble.rds")
openxlsx::write.xlsx(people, "openxlsx.xlsx", rowNames = FALSE, keepNA = TRUE)
coded <- data.frame(
  y = people$y, age = people$age, dose = people$dose,
  stage = haven::labelled(as.numeric(people$stage), c(I = 1, II = 2, III = 3)),
  grade = haven::labelled(as.numeric(people$grade), c(low = 1, mid = 2, high = 3)),
  # 3 has no label
  part = haven::labelled(as.numeric(people$grade), c(low = 1, mid = 2)),
  # 99 is missing by the user's declaration
  score = haven::labelled_spss(ifelse(seq_len(n) %% 7 == 0, 99, people$age), na_values = 99),
  visit = people$visit, seen = people$seen
)
haven::write_sav(coded, "people.sav", compress = "byte")
haven::write_sav(coded, "people.zsav", compress = "zsav")
for_stata <- coded
for_stata$score <- haven::labelled(ifelse(seq_len(n) %% 7 == 0, haven::tagged_na("a"), people$age))
haven::write_dta(for_stata, "people.dta")
for_sas <- data.frame(
  y = people$y, age = people$age, dose = people$dose, stage = as.character(people$stage),
  visit = people$visit, seen = people$seen
)
for_sas$stage[is.na(for_sas$stage)] <- ""
haven::write_xpt(for_sas, "people.xpt")
suppressWarnings(haven::write_sas(for_sas, "people.sas7bdat"))

# Columns that are not plain vectors: a matrix of one column, AsIs, a factor with the level NA.
odd <- data.frame(y = people$y, age = people$age)
odd$scaled <- scale(odd$age)
odd$as_is <- I(odd$age)
odd$stage <- addNA(people$stage)
saveRDS(odd, "odd.rds", version = 2)
